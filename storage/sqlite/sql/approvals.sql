-- Questions to people.

-- name: approval_of
-- The question of a turn and key.
SELECT a.id, s.id, a.state, a.expires FROM approval AS a LEFT JOIN session AS s ON s.mailbox = a.mailbox
WHERE a.message = ? AND a.key = ?

-- name: approval_insert
-- A new question.
INSERT INTO approval (id, scope, mailbox, message, key, state, expires) VALUES (?, ?, ?, ?, ?, 'waiting', ?)

-- name: approval_for_change
-- A question of a scope, with the recipient that waits for it.
SELECT a.id, s.id, a.state, a.expires, m.recipient
FROM approval AS a JOIN mailbox AS m ON m.id = a.mailbox LEFT JOIN session AS s ON s.mailbox = a.mailbox
WHERE a.id = ? AND a.scope = ?

-- name: approval_close
-- Answer a question that still waits.
UPDATE approval SET state = ?, answered_at = ?, answered_by = ? WHERE id = ? AND state = 'waiting'
