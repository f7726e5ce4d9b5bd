-- Writes of a running turn. The first statement of each op reads the fence; the write lock of the batch holds it.

-- name: fence
-- The mailboxes of leases, and what an end of their turns needs.
WITH v (id) AS (VALUES :rows)
SELECT m.id, m.epoch, m.holder, m.head, m.last_seq, m.last_event, m.scope, m.taken, m.block, m.stop_at,
    h.uid, h.message_id, h.claims, h.status, s.id, s.parent, s.child_state, s.agent, s.path, h.chain, h.hops, h.attempts,
    h.max_attempts, h.kind, h.sender, h.sender_kind, c.tenant, c.project, m.handoff
FROM v CROSS JOIN mailbox AS m ON m.id = v.id JOIN scope AS c ON c.id = m.scope LEFT JOIN message AS h ON h.id = m.head
LEFT JOIN session AS s ON s.mailbox = m.id

-- name: mailbox_count_events
-- Take event numbers during a turn.
UPDATE mailbox SET last_event = ?, block = ?, updated_at = ? WHERE id = ?

-- name: step_by_key
-- A step as it was recorded.
SELECT key, kind, ordinal, done, data, result FROM step WHERE message = ? AND key = ?

-- name: step_put
-- Record a step, or its result; a done step is never written over.
INSERT INTO step (scope, mailbox, message, key, kind, ordinal, done, data, result, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (message, key) DO UPDATE
SET done = excluded.done, data = excluded.data, result = excluded.result, at = excluded.at WHERE done = 0

-- name: steerable
-- Pending messages that may join the running turn, oldest first.
SELECT h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, t.content
FROM message AS h JOIN entry AS t ON t.mailbox = h.mailbox AND t.seq = h.seq
WHERE h.mailbox = ? AND h.wakes = 1 AND h.status IN ('pending', 'processing') AND h.status = 'pending' AND h.steers = 1
ORDER BY h.id LIMIT ?

-- name: row_absorb
-- A steered row becomes part of the turn of a head.
UPDATE message SET status = 'processing', absorbed_by = ?, leased_at = ?, surfaced_at = ?, updated_at = ?
WHERE id = ? AND status = 'pending'

-- name: mailbox_taken
-- Count rows that the turn has taken.
UPDATE mailbox SET taken = taken + ? WHERE id = ?

-- name: row_deliver
-- Consumed messages are delivered.
UPDATE message SET status = 'delivered', outcome = v.outcome, delivered_at = v.at, updated_at = v.at
FROM (WITH v (outcome, at, id, mailbox) AS (VALUES :rows) SELECT * FROM v) AS v
WHERE message.id = v.id AND message.mailbox = v.mailbox AND message.status = 'processing'

-- name: row_state
-- What became of a consumed row, and whether an earlier turn has consumed it.
SELECT status, EXISTS (SELECT 1 FROM marker AS k WHERE k.mailbox = message.mailbox AND k.message = message.id)
FROM message WHERE id = ? AND mailbox = ?

-- name: marker_insert
-- What makes a second committed turn of these messages impossible.
INSERT INTO marker (scope, mailbox, message, turn, epoch, attempt, seq, due) VALUES :rows

-- name: marker_of
-- The marker of a message.
SELECT epoch, seq, due FROM marker WHERE mailbox = ? AND message = ?

-- name: rows_return
-- Rows of the turn that it did not consume go back to their place; absorbed_by is kept if the same turn will run again.
UPDATE message SET status = 'pending', absorbed_by = CASE WHEN ?2 THEN absorbed_by END, updated_at = ?3
WHERE mailbox = ?1 AND status IN ('pending', 'processing') AND status = 'processing'

-- name: head_retry
-- Put the head off, with or without an attempt.
UPDATE message SET attempts = attempts + ?, available_at = ?, last_error = coalesce(?, last_error), updated_at = ?
WHERE id = ? AND status = 'pending'

-- name: attempt_insert
-- How an attempt ended without a commit.
INSERT INTO attempt (scope, mailbox, message, epoch, attempt, ending, detail, status, due, at)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: attempt_of
-- The record of an attempt by its epoch, for the repeat rule.
SELECT ending, status, due FROM attempt WHERE mailbox = ? AND epoch = ?

-- name: mailbox_release
-- Give leases back and compute when each mailbox needs its next look, after its rows have moved.
UPDATE mailbox SET holder = NULL, holder_kind = NULL, nonce = NULL, head = NULL, taken = 0, last_seq = v.last_seq,
    last_event = v.last_event, depth = depth - v.gone, stuck = coalesce(v.stuck, mailbox.stuck),
    stop_at = CASE WHEN v.keep_stop THEN stop_at END, stop_grace = CASE WHEN v.keep_stop THEN stop_grace END,
    updated_at = v.now,
    due = (
        SELECT max(coalesce(available_at, v.now), v.now) FROM (
            SELECT x.available_at FROM message AS x
            WHERE x.mailbox = mailbox.id AND x.wakes = 1 AND x.status IN ('pending', 'processing') ORDER BY x.id LIMIT 1
        )
    )
FROM (WITH v (last_seq, last_event, gone, stuck, keep_stop, now, id) AS (VALUES :rows) SELECT * FROM v) AS v
WHERE mailbox.id = v.id
RETURNING id, due

-- name: child_end
-- The child's final state, once.
UPDATE session SET child_state = ? WHERE id = ? AND child_state = 'running'

-- name: session_title
-- How a session is called when it signs something.
SELECT s.title, s.agent, s.path, m.recipient, s.deleted_at, c.tenant, c.project
FROM session AS s JOIN mailbox AS m ON m.id = s.mailbox JOIN scope AS c ON c.id = s.scope WHERE s.id = ?

-- name: child_task
-- The message that started a child: the first of its mailbox.
SELECT h.chain, h.hops FROM session AS s
JOIN entry AS t ON t.mailbox = s.mailbox AND t.seq = 1 JOIN message AS h ON h.id = t.message
WHERE s.id = ?

-- name: message_fail_held
-- Fail the head of the running turn.
UPDATE message SET status = 'failed', reason = ?, last_error = ?, attempts = attempts + ?, updated_at = ?
WHERE id = ? AND status = 'processing'
