-- Claims, renewals, voiding.

-- name: process_nonce
-- The nonce of a process's last claim.
SELECT nonce FROM process WHERE holder = ?

-- name: process_claimed
-- Remember the nonce of a process's claim.
INSERT INTO process (holder, nonce, seen_at) VALUES (?, ?, ?)
ON CONFLICT (holder) DO UPDATE SET nonce = excluded.nonce, seen_at = excluded.seen_at

-- name: due_mailboxes
-- Mailboxes that are due, oldest first, each with its session and its head message.
SELECT m.id, m.recipient, m.epoch, m.last_event, m.head, m.stop_at, m.stop_grace,
    m.scope, c.tenant, c.project,
    s.id, s.kind, s.agent, s.path, s.parent, CASE WHEN s.child_state = 'running' THEN s.deadline END,
    h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, h.status, h.attempts, h.max_attempts, h.takeovers, h.claims, m.due, t.content,
    EXISTS (SELECT 1 FROM message AS x WHERE x.mailbox = m.id AND x.wakes = 0 AND x.status IN ('pending', 'processing'))
FROM (SELECT id FROM mailbox WHERE due <= :now ORDER BY due LIMIT :limit) AS d
JOIN mailbox AS m ON m.id = d.id
JOIN scope AS c ON c.id = m.scope
LEFT JOIN session AS s ON s.mailbox = m.id
LEFT JOIN message AS h ON h.id = (
    SELECT x.id FROM message AS x
    WHERE x.mailbox = m.id AND x.wakes = 1 AND x.status IN ('pending', 'processing') ORDER BY x.id LIMIT 1
)
LEFT JOIN entry AS t ON t.mailbox = m.id AND t.seq = h.seq

-- name: held_mailbox
-- The same columns for a mailbox that is held.
SELECT m.id, m.recipient, m.epoch, m.last_event, m.head, m.stop_at, m.stop_grace,
    m.scope, c.tenant, c.project,
    s.id, s.kind, s.agent, s.path, s.parent, CASE WHEN s.child_state = 'running' THEN s.deadline END,
    h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, h.status, h.attempts, h.max_attempts, h.takeovers, h.claims, m.due, t.content,
    EXISTS (SELECT 1 FROM message AS x WHERE x.mailbox = m.id AND x.wakes = 0 AND x.status IN ('pending', 'processing'))
FROM mailbox AS m
JOIN scope AS c ON c.id = m.scope
LEFT JOIN session AS s ON s.mailbox = m.id
LEFT JOIN message AS h ON h.id = m.head
LEFT JOIN entry AS t ON t.mailbox = m.id AND t.seq = h.seq
WHERE m.id = ?

-- name: mailbox_claim
-- Take leases: the epoch rises, so every older holder is fenced out.
UPDATE mailbox SET due = v.due, epoch = v.epoch, holder = v.holder, holder_kind = v.holder_kind, nonce = v.nonce,
    head = v.head, taken = v.taken, last_event = v.last_event, stop_at = v.stop_at, stop_grace = v.stop_grace, block = 0,
    updated_at = v.at
FROM (
    WITH v (due, epoch, holder, holder_kind, nonce, head, taken, last_event, stop_at, stop_grace, at, id)
        AS (VALUES :rows) SELECT * FROM v
) AS v
WHERE mailbox.id = v.id

-- name: head_claim
-- Heads become part of their turns; takeovers counts leases that were lost, claims numbers the attempts.
UPDATE message SET status = 'processing', takeovers = v.takeovers, claims = v.claims, leased_at = v.at, surfaced_at = v.at,
    updated_at = v.at
FROM (WITH v (takeovers, claims, at, id) AS (VALUES :rows) SELECT * FROM v) AS v
WHERE message.id = v.id AND message.status IN ('pending', 'processing')

-- name: carried_for_claim
-- What a turn takes along: next-turn rows ahead of the head, and rows that an earlier attempt of it had absorbed.
SELECT h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, t.content, h.absorbed_by
FROM message AS h JOIN entry AS t ON t.mailbox = h.mailbox AND t.seq = h.seq
WHERE h.mailbox = ?1 AND h.status IN ('pending', 'processing') AND h.id <> ?2
    AND ((h.wakes = 0 AND h.id < ?2) OR h.absorbed_by = ?2)
ORDER BY h.absorbed_by IS NULL, h.id LIMIT 200

-- name: row_take
-- Move rows into turns, beside their heads.
UPDATE message SET status = 'processing', leased_at = v.at, surfaced_at = v.at, updated_at = v.at
FROM (WITH v (at, id) AS (VALUES :rows) SELECT * FROM v) AS v
WHERE message.id = v.id AND message.status IN ('pending', 'processing')

-- name: mailbox_put_off
-- This process knows no such agent: look again later. Nothing has happened in the session, so `updated_at` stays.
UPDATE mailbox SET due = ?, holder = NULL WHERE id = ?

-- name: mailbox_lost
-- The same for a turn whose holder was lost: it is active no more. A stop that was stored for it stays with its head.
UPDATE mailbox SET due = ?, last_event = ?, updated_at = ?, holder = NULL, holder_kind = NULL, nonce = NULL, head = NULL,
    taken = 0
WHERE id = ?

-- name: head_put_off
-- The head of a mailbox that was put off: it waits with the mailbox, without an attempt.
UPDATE message SET takeovers = takeovers + ?, available_at = ?, updated_at = ? WHERE id = ? AND status = 'pending'

-- name: mailbox_idle
-- A due mailbox without a waking row: nothing to do.
UPDATE mailbox SET due = NULL, holder = NULL WHERE id = ?

-- name: held_by_nonce
-- What a repeated claim still holds.
SELECT id FROM mailbox WHERE holder = ? AND nonce = ? AND due IS NOT NULL

-- name: mailbox_renew
-- Renew leases under their epochs; those that are still held, each with the stop that is stored for its turn.
UPDATE mailbox SET due = max(mailbox.due, v.due)
FROM (WITH v (due, id, epoch) AS (VALUES :rows) SELECT * FROM v) AS v
WHERE mailbox.id = v.id AND mailbox.epoch = v.epoch AND holder IS NOT NULL
RETURNING id, stop_at, stop_grace

-- name: void_leases
-- End the leases of one holder kind: due now, holder gone. The head stays `processing`, so the next claim counts a takeover.
UPDATE mailbox SET due = ?, holder = NULL WHERE holder IS NOT NULL AND holder_kind = ?

-- name: void_stuck
-- A new owner has no stuck task.
UPDATE mailbox SET stuck = NULL WHERE stuck IS NOT NULL

-- name: due_after
-- When the next mailbox that is not due yet will be.
SELECT min(due) FROM mailbox WHERE due > :now
