-- Accepting, cancelling and requeuing messages.

-- name: targets_for_enqueue
-- The mailboxes of recipients in a scope with their counters, and whether their sessions still take mail.
WITH v (recipient, scope) AS (VALUES :rows)
SELECT v.recipient, v.scope, m.id, m.last_seq, m.last_event, m.depth, m.due, s.deleted_at, s.kind, s.id
FROM v CROSS JOIN mailbox AS m ON m.recipient = v.recipient AND m.scope = v.scope LEFT JOIN session AS s ON s.mailbox = m.id

-- name: message_insert
-- New pending messages; a taken id or key inserts nothing.
INSERT INTO message (
    scope, mailbox, uid, message_id, principal, digest, transport, destination_peer, sender, sender_kind, sender_label,
    kind, wakes, steers, payload, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops, reply_to,
    requeued_from
) VALUES :rows
ON CONFLICT DO NOTHING
RETURNING id, uid

-- name: message_by_key
-- The message that a sender's own id names, or that has this id of ours, for the repeat rule.
SELECT uid, message_id, mailbox, digest, status, seq FROM message
WHERE scope = ?1 AND (uid = ?2 OR (message_id = ?3 AND principal = ?4))

-- name: messages_by_key
-- The messages that senders' own ids name already.
WITH v (scope, message_id, principal) AS (VALUES :rows)
SELECT v.scope, v.message_id, v.principal, m.uid, m.message_id, m.mailbox, m.digest, m.status, m.seq
FROM v CROSS JOIN message AS m ON m.scope = v.scope AND m.message_id = v.message_id AND m.principal = v.principal

-- name: entry_insert
-- Rows of transcripts.
INSERT INTO entry (scope, mailbox, seq, role, content, message, at) VALUES :rows

-- name: event_insert
-- Events; their numbers were taken from their mailboxes in this transaction.
INSERT INTO event (scope, mailbox, n, kind, turn, seq, data, at) VALUES :rows

-- name: mailbox_accept
-- Count new messages in and wake the mailbox if it is idle; a lease or a back-off is never touched.
UPDATE mailbox SET last_seq = v.last_seq, last_event = v.last_event, depth = depth + v.more, due = coalesce(due, v.wake),
    updated_at = v.at
FROM (WITH v (last_seq, last_event, more, wake, at, id) AS (VALUES :rows) SELECT * FROM v) AS v
WHERE mailbox.id = v.id

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
