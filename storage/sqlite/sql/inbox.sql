-- Accepting, cancelling and requeuing messages.

-- name: target_for_enqueue
-- The mailbox of a recipient in a scope with its counters, and whether its session still takes mail.
SELECT m.id, m.last_seq, m.last_event, m.depth, m.due, s.deleted_at, s.kind, s.id
FROM mailbox AS m LEFT JOIN session AS s ON s.mailbox = m.id
WHERE m.recipient = ? AND m.scope = ?

-- name: message_insert
-- A new pending message; a taken id or key inserts nothing.
INSERT INTO message (
    scope, mailbox, uid, message_id, principal, digest, transport, destination_peer, sender, sender_kind, sender_label,
    kind, wakes, steers, payload, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops, reply_to,
    requeued_from
) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING

-- name: message_by_key
-- The message that a sender's own id names, or that has this id of ours, for the repeat rule.
SELECT uid, message_id, mailbox, digest, status, seq FROM message
WHERE scope = ?1 AND (uid = ?2 OR (message_id = ?3 AND principal = ?4))

-- name: entry_insert
-- One row of a transcript.
INSERT INTO entry (scope, mailbox, seq, role, content, message, at) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: event_insert
-- One event; its number was taken from the mailbox in this transaction.
INSERT INTO event (scope, mailbox, n, kind, turn, seq, data, at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: mailbox_accept
-- Count a new message in and wake the mailbox if it is idle; a lease or a back-off is never touched.
UPDATE mailbox SET last_seq = ?, last_event = ?, depth = depth + 1, due = coalesce(due, ?), updated_at = ? WHERE id = ?

-- name: pair_count
-- How many agent messages a sender put into a mailbox since a time.
SELECT count(*) FROM message WHERE mailbox = ? AND sender = ? AND kind = 'agent_message' AND created_at > ?

-- name: message_for_change
-- What cancel, requeue and fail need of a message.
SELECT e.id, e.mailbox, e.uid, e.message_id, e.status, e.reason, e.kind, e.sender, e.sender_kind, e.chain, e.hops,
    e.payload, e.max_attempts, e.seq, e.claims, m.recipient, m.last_event, m.holder, e.transport, e.destination_peer,
    e.sender_label, e.reply_to, s.id, s.parent, e.pruned_at
FROM message AS e JOIN mailbox AS m ON m.id = e.mailbox LEFT JOIN session AS s ON s.mailbox = m.id
WHERE e.uid = ? AND e.scope = ?

-- name: message_fail
-- Fail an open message that stands in a given state.
UPDATE message SET status = 'failed', reason = ?, last_error = coalesce(?, last_error), absorbed_by = NULL, updated_at = ?
WHERE id = ? AND status = ?

-- name: entry_content
-- The text of a message, by its place in the transcript.
SELECT content FROM entry WHERE mailbox = ? AND seq = ?

-- name: mailbox_settle
-- Recompute when an unheld mailbox needs a look, after messages left it from outside a turn.
UPDATE mailbox SET last_event = ?, depth = depth - ?, updated_at = ?, due = CASE WHEN holder IS NULL THEN (
    SELECT available_at FROM message
    WHERE mailbox = mailbox.id AND wakes = 1 AND status IN ('pending', 'processing') ORDER BY id LIMIT 1
) ELSE due END
WHERE id = ?
