-- Retention: the bodies of final messages go first, their rows when a repeat need not be known any more.

-- name: scopes
-- Every project, for upkeep that is on behalf of none.
SELECT id FROM scope ORDER BY id

-- name: messages_to_blank
-- Final messages of a project that still have their body, those that ended first before the others.
SELECT id FROM message
WHERE scope = ? AND pruned_at IS NULL AND status IN ('delivered', 'failed') AND updated_at < ? ORDER BY updated_at LIMIT ?

-- name: message_blank
-- Take the body of a final message; key and digest stay.
UPDATE message SET payload = NULL, last_error = NULL, pruned_at = ?
WHERE id = ? AND pruned_at IS NULL AND status IN ('delivered', 'failed')

-- name: attempts_blank
-- Errors of agents quote what they were given.
UPDATE attempt SET detail = NULL WHERE message = ? AND detail IS NOT NULL

-- name: steps_forget
-- The step log of a turn that will never run again.
DELETE FROM step WHERE message = ?

-- name: approvals_forget
-- Nor will anybody be asked about it again.
DELETE FROM approval WHERE message = ?

-- name: messages_to_forget
-- Messages of a project whose body went before a time, each with what its entries show of it and where its answer stands.
SELECT h.id, h.mailbox, h.seq, k.seq, h.uid, h.message_id, h.status, h.sender, h.sender_kind, h.sender_label
FROM message AS h LEFT JOIN marker AS k ON k.mailbox = h.mailbox AND k.message = h.id
WHERE h.scope = ? AND h.pruned_at < ? ORDER BY h.pruned_at LIMIT ?

-- name: entry_origin
-- Write down what an entry shows of a message whose row goes.
UPDATE entry SET origin = ? WHERE mailbox = ? AND seq = ? AND message = ?

-- name: message_forget
-- The row of a message whose body is long gone.
DELETE FROM message WHERE id = ? AND pruned_at IS NOT NULL

-- name: marker_forget
-- The marker goes with its message: nobody can claim it any more.
DELETE FROM marker WHERE mailbox = ? AND message = ?

-- name: attempts_forget
-- And so does its history.
DELETE FROM attempt WHERE message = ?

-- name: processes_forget
-- Processes that have claimed nothing for long, and the one that has said goodbye.
DELETE FROM process WHERE seen_at < ?1 OR holder = ?2

-- name: stuck_forget
-- A stuck task ended with its process.
UPDATE mailbox SET stuck = NULL WHERE stuck IS NOT NULL AND stuck NOT IN (SELECT holder FROM process)
