-- Writes of a running turn. The first statement of each op reads the fence; the batch has locked its mailbox.

-- name: fence
-- The mailboxes of leases, and what an end of their turns needs.
SELECT m.id, m.epoch, m.holder, m.head, m.last_seq, m.last_event, m.scope, m.taken, m.block, m.stop_at,
    h.uid, h.message_id, h.claims, h.status, s.id, s.parent, s.child_state, s.agent, s.path, h.chain, h.hops, h.attempts,
    h.max_attempts, h.kind, h.sender, h.sender_kind, c.tenant, c.project, m.handoff
FROM unnest($1::bigint[]) AS v (id) JOIN mailbox AS m ON m.id = v.id JOIN scope AS c ON c.id = m.scope
LEFT JOIN message AS h ON h.id = m.head LEFT JOIN session AS s ON s.mailbox = m.id

-- name: mailbox_count_events
-- Take event numbers during a turn.
UPDATE mailbox SET last_event = $1, block = $2, updated_at = $3 WHERE id = $4

-- name: step_by_key
-- A step as it was recorded.
SELECT key, kind, ordinal, done, data, result FROM step WHERE message = $1 AND key = $2

-- name: step_put
-- Record a step, or its result; a done step is never written over.
INSERT INTO step (scope, mailbox, message, key, kind, ordinal, done, data, result, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
ON CONFLICT (message, key) DO UPDATE
SET done = excluded.done, data = excluded.data, result = excluded.result, at = excluded.at WHERE step.done = 0

-- name: steerable
-- Pending messages that may join the running turn, oldest first.
SELECT h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, t.content
FROM message AS h
JOIN LATERAL (SELECT x.content FROM entry AS x WHERE x.mailbox = h.mailbox AND x.seq = h.seq OFFSET 0) AS t ON true
WHERE h.mailbox = $1 AND h.wakes = 1 AND h.status IN ('pending', 'processing') AND h.status = 'pending' AND h.steers = 1
ORDER BY h.id LIMIT $2

-- name: row_absorb
-- A steered row becomes part of the turn of a head.
UPDATE message SET status = 'processing', absorbed_by = v.head, leased_at = v.leased, surfaced_at = v.surfaced,
    updated_at = v.updated
FROM unnest($1::bigint[], $2::float8[], $3::float8[], $4::float8[], $5::bigint[]) AS v (head, leased, surfaced, updated, id)
WHERE message.id = v.id AND message.status || '' = 'pending'

-- name: mailbox_taken
-- Count rows that the turn has taken.
UPDATE mailbox SET taken = taken + $1 WHERE id = $2

-- name: row_deliver
-- Consumed messages are delivered.
UPDATE message SET status = 'delivered', outcome = v.outcome, delivered_at = v.at, updated_at = v.at
FROM unnest($1::text[], $2::float8[], $3::bigint[], $4::bigint[]) AS v (outcome, at, id, mailbox)
WHERE message.id = v.id AND message.mailbox + 0 = v.mailbox AND message.status || '' = 'processing'

-- name: row_state
-- What became of a consumed row, and whether an earlier turn has consumed it.
SELECT status, EXISTS (SELECT FROM marker AS k WHERE k.mailbox = message.mailbox AND k.message = message.id)::int
FROM message WHERE id = $1 AND mailbox + 0 = $2

-- name: marker_insert
-- What makes a second committed turn of these messages impossible.
INSERT INTO marker (scope, mailbox, message, turn, epoch, attempt, seq, due)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[], $7::bigint[], $8::float8[]
)

-- name: marker_of
-- The marker of a message.
SELECT epoch, seq, due FROM marker WHERE mailbox = $1 AND message = $2

-- name: rows_return
-- Rows of the turn that it did not consume go back to their place; absorbed_by is kept if the same turn will run again.
UPDATE message SET status = 'pending', absorbed_by = CASE WHEN $2::int <> 0 THEN absorbed_by END, updated_at = $3
WHERE mailbox = $1 AND status IN ('pending', 'processing') AND status = 'processing'

-- name: head_retry
-- Put the head off, with or without an attempt.
UPDATE message SET attempts = attempts + $1, available_at = $2, last_error = coalesce($3, last_error), updated_at = $4
WHERE id = $5 AND status || '' = 'pending'

-- name: attempt_insert
-- How an attempt ended without a commit.
INSERT INTO attempt (scope, mailbox, message, epoch, attempt, ending, detail, status, due, at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)

-- name: attempt_of
-- The record of an attempt by its epoch, for the repeat rule.
SELECT ending, status, due FROM attempt WHERE mailbox = $1 AND epoch = $2

-- name: mailbox_release
-- Give leases back and compute when each mailbox needs its next look, after its rows have moved.
UPDATE mailbox SET holder = NULL, holder_kind = NULL, nonce = NULL, head = NULL, taken = 0, last_seq = v.last_seq,
    last_event = v.last_event, depth = depth - v.gone, stuck = coalesce(v.stuck, mailbox.stuck),
    stop_at = CASE WHEN v.keep_stop <> 0 THEN stop_at END, stop_grace = CASE WHEN v.keep_stop <> 0 THEN stop_grace END,
    updated_at = v.at,
    due = (
        SELECT greatest(x.available_at, v.at) FROM message AS x
        WHERE x.mailbox = mailbox.id AND x.wakes = 1 AND x.status IN ('pending', 'processing') ORDER BY x.id LIMIT 1
    )
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::int[], $6::float8[], $7::bigint[])
    AS v (last_seq, last_event, gone, stuck, keep_stop, at, id)
WHERE mailbox.id = v.id
RETURNING mailbox.id, mailbox.due

-- name: child_end
-- The child's final state, once.
UPDATE session SET child_state = $1 WHERE id = $2 AND child_state || '' = 'running'

-- name: session_title
-- How a session is called when it signs something.
SELECT s.title, s.agent, s.path, m.recipient, s.deleted_at, c.tenant, c.project
FROM session AS s JOIN mailbox AS m ON m.id = s.mailbox JOIN scope AS c ON c.id = s.scope WHERE s.id = $1

-- name: child_task
-- The message that started a child: the first of its mailbox.
SELECT chain, hops FROM message WHERE id = (
    SELECT message FROM entry WHERE mailbox = (SELECT mailbox FROM session WHERE id = $1) AND seq = 1
)

-- name: message_fail_held
-- Fail the head of the running turn.
UPDATE message SET status = 'failed', reason = $1, last_error = $2, attempts = attempts + $3, updated_at = $4
WHERE id = $5 AND status || '' = 'processing'
