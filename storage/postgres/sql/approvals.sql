-- Questions to people.

-- name: approval_of
-- The question of a turn and key.
SELECT a.id, s.id, a.state, a.expires FROM approval AS a LEFT JOIN session AS s ON s.mailbox = a.mailbox
WHERE a.message = $1 AND a.key = $2

-- name: approval_insert
-- A new question.
INSERT INTO approval (id, scope, mailbox, message, key, state, expires) VALUES ($1, $2, $3, $4, $5, 'waiting', $6)

-- name: approval_for_change
-- A question of a scope, with the recipient that waits for it. It is locked: two people may answer it at once, each at another process.
SELECT a.id, s.id, a.state, a.expires, m.recipient
FROM approval AS a JOIN mailbox AS m ON m.id = a.mailbox LEFT JOIN session AS s ON s.mailbox = a.mailbox
WHERE a.id = $1 AND a.scope = $2 FOR NO KEY UPDATE OF a

-- name: approval_close
-- Answer a question that still waits.
UPDATE approval SET state = $1, answered_at = $2, answered_by = $3 WHERE id = $4 AND state = 'waiting'
