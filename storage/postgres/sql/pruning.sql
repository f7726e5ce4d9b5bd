-- Retention: the bodies of final messages go first, their rows when a repeat need not be known any more.

-- name: scopes
-- Every project, for upkeep that is on behalf of none.
SELECT id FROM scope ORDER BY id

-- name: messages_to_blank
-- Final messages of a project that still have their body, those that ended first before the others.
SELECT id FROM message
WHERE scope = $1 AND pruned_at IS NULL AND status IN ('delivered', 'failed') AND updated_at < $2 ORDER BY updated_at LIMIT $3

-- name: message_blank
-- Take the body of a final message; key and digest stay.
UPDATE message SET payload = NULL, last_error = NULL, pruned_at = v.at FROM unnest($1::float8[], $2::bigint[]) AS v (at, id)
WHERE message.id = v.id AND message.pruned_at IS NULL AND message.status || '' IN ('delivered', 'failed')

-- name: attempts_blank
-- Errors of agents quote what they were given.
UPDATE attempt SET detail = NULL FROM unnest($1::bigint[]) AS v (message)
WHERE attempt.message = v.message AND attempt.detail IS NOT NULL

-- name: steps_forget
-- The step log of a turn that will never run again.
DELETE FROM step USING unnest($1::bigint[]) AS v (message) WHERE step.message = v.message

-- name: approvals_forget
-- Nor will anybody be asked about it again.
DELETE FROM approval USING unnest($1::bigint[]) AS v (message) WHERE approval.message = v.message

-- name: messages_to_forget
-- Messages of a project whose body went before a time, each with what its entries show of it and where its answer stands.
SELECT h.id, h.mailbox, h.seq, k.seq, h.uid, h.message_id, h.status, h.sender, h.sender_kind, h.sender_label
FROM message AS h LEFT JOIN marker AS k ON k.mailbox = h.mailbox AND k.message = h.id
WHERE h.scope = $1 AND h.pruned_at < $2 ORDER BY h.pruned_at LIMIT $3

-- name: entry_origin
-- Write down what an entry shows of a message whose row goes.
UPDATE entry SET origin = v.origin
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[]) AS v (origin, mailbox, seq, message)
WHERE entry.mailbox = v.mailbox AND entry.seq = v.seq AND entry.message = v.message

-- name: message_forget
-- The row of a message whose body is long gone.
DELETE FROM message WHERE id = $1 AND coalesce(pruned_at, -1) >= 0

-- name: marker_forget
-- The marker goes with its message: nobody can claim it any more.
DELETE FROM marker WHERE mailbox = $1 AND message = $2

-- name: attempts_forget
-- And so does its history.
DELETE FROM attempt WHERE message = $1

-- name: processes_forget
-- Processes that have claimed nothing for long, and the one that has said goodbye.
DELETE FROM process WHERE seen_at < $1 OR holder = $2

-- name: stuck_forget
-- A stuck task ended with its process. The mailboxes are locked in the one order that all transactions take.
WITH m AS MATERIALIZED (
    SELECT id FROM mailbox WHERE stuck IS NOT NULL AND NOT EXISTS (SELECT FROM process AS p WHERE p.holder = stuck)
    ORDER BY id FOR NO KEY UPDATE
)
UPDATE mailbox SET stuck = NULL FROM m WHERE mailbox.id = m.id
