-- Claims, renewals, voiding.

-- name: process_nonce
-- The nonce of a process's last claim.
SELECT nonce FROM process WHERE holder = $1

-- name: process_claimed
-- Remember the nonce of a process's claim.
INSERT INTO process (holder, nonce, seen_at) VALUES ($1, $2, $3)
ON CONFLICT (holder) DO UPDATE SET nonce = excluded.nonce, seen_at = excluded.seen_at

-- name: due_mailboxes
-- Mailboxes that are due, oldest first, each with its session and its head message: of those that this transaction has locked, in a
-- statement before this one, as what they hold must be read after that. That statement has left them and the time in settings of the
-- transaction, so that this one need not wait for its answer.
SELECT m.id, m.recipient, m.epoch, m.last_event, m.head, m.stop_at, m.stop_grace,
    m.scope, c.tenant, c.project,
    s.id, s.kind, s.agent, s.path, s.parent, CASE WHEN s.child_state = 'running' THEN s.deadline END,
    h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, h.status, h.attempts, h.max_attempts, h.takeovers, h.claims, m.due, t.content,
    ((
        SELECT 1 FROM message AS x WHERE x.mailbox = m.id AND x.wakes = 0 AND x.status IN ('pending', 'processing') LIMIT 1
    ) IS NOT NULL)::int
FROM (
    SELECT b.* FROM unnest(current_setting('callboard.locked')::bigint[]) AS v (id)
    CROSS JOIN LATERAL (SELECT * FROM mailbox AS x WHERE x.id = v.id OFFSET 0) AS b
    WHERE b.due <= (SELECT current_setting('callboard.now')::float8) ORDER BY b.due LIMIT :limit
) AS m
JOIN scope AS c ON c.id = m.scope
LEFT JOIN session AS s ON s.mailbox = m.id
LEFT JOIN LATERAL (
    SELECT x.* FROM message AS x
    WHERE x.mailbox = m.id AND x.wakes = 1 AND x.status IN ('pending', 'processing') ORDER BY x.id LIMIT 1
) AS h ON true
LEFT JOIN LATERAL (SELECT x.content FROM entry AS x WHERE x.mailbox = h.mailbox AND x.seq = h.seq OFFSET 0) AS t ON true
ORDER BY m.due

-- name: held_mailbox
-- The same columns for a mailbox that is held.
SELECT m.id, m.recipient, m.epoch, m.last_event, m.head, m.stop_at, m.stop_grace,
    m.scope, c.tenant, c.project,
    s.id, s.kind, s.agent, s.path, s.parent, CASE WHEN s.child_state = 'running' THEN s.deadline END,
    h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, h.status, h.attempts, h.max_attempts, h.takeovers, h.claims, m.due, t.content,
    ((
        SELECT 1 FROM message AS x WHERE x.mailbox = m.id AND x.wakes = 0 AND x.status IN ('pending', 'processing') LIMIT 1
    ) IS NOT NULL)::int
FROM mailbox AS m
JOIN scope AS c ON c.id = m.scope
LEFT JOIN session AS s ON s.mailbox = m.id
LEFT JOIN message AS h ON h.id = m.head
LEFT JOIN LATERAL (SELECT x.content FROM entry AS x WHERE x.mailbox = h.mailbox AND x.seq = h.seq OFFSET 0) AS t ON true
WHERE m.id = $1

-- name: mailbox_claim
-- Take leases: the epoch rises, so every older holder is fenced out.
UPDATE mailbox SET due = v.due, epoch = v.epoch, holder = v.holder, holder_kind = v.holder_kind, nonce = v.nonce,
    head = v.head, taken = v.taken, last_event = v.last_event, stop_at = v.stop_at, stop_grace = v.stop_grace, block = 0,
    updated_at = v.at
FROM unnest(
    $1::float8[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::bigint[], $9::float8[],
    $10::float8[], $11::float8[], $12::bigint[]
) AS v (due, epoch, holder, holder_kind, nonce, head, taken, last_event, stop_at, stop_grace, at, id)
WHERE mailbox.id = v.id

-- name: head_claim
-- Heads become part of their turns; takeovers counts leases that were lost, claims numbers the attempts.
UPDATE message SET status = 'processing', takeovers = v.takeovers, claims = v.claims, leased_at = v.at, surfaced_at = v.at,
    updated_at = v.at
FROM unnest($1::bigint[], $2::bigint[], $3::float8[], $4::bigint[]) AS v (takeovers, claims, at, id)
WHERE message.id = v.id AND message.status || '' IN ('pending', 'processing')

-- name: carried_for_claim
-- What a turn takes along: next-turn rows ahead of the head, and rows that an earlier attempt of it had absorbed.
SELECT h.id, h.uid, h.message_id, h.kind, h.sender, h.sender_kind, h.sender_label, h.seq, h.chain, h.hops, h.created_at,
    h.payload, h.reply_to, t.content, h.absorbed_by
FROM message AS h
JOIN LATERAL (SELECT x.content FROM entry AS x WHERE x.mailbox = h.mailbox AND x.seq = h.seq OFFSET 0) AS t ON true
WHERE h.mailbox = $1 AND h.status IN ('pending', 'processing') AND h.id <> $2
    AND ((h.wakes = 0 AND h.id < $2) OR h.absorbed_by = $2)
ORDER BY h.absorbed_by IS NULL, h.id LIMIT 200

-- name: row_take
-- Move rows into turns, beside their heads.
UPDATE message SET status = 'processing', leased_at = v.at, surfaced_at = v.at, updated_at = v.at
FROM unnest($1::float8[], $2::bigint[]) AS v (at, id)
WHERE message.id = v.id AND message.status || '' IN ('pending', 'processing')

-- name: mailbox_put_off
-- This process knows no such agent: look again later. Nothing has happened in the session, so `updated_at` stays.
UPDATE mailbox SET due = $1, holder = NULL WHERE id = $2

-- name: mailbox_lost
-- The same for a turn whose holder was lost: it is active no more. A stop that was stored for it stays with its head.
UPDATE mailbox SET due = $1, last_event = $2, updated_at = $3, holder = NULL, holder_kind = NULL, nonce = NULL, head = NULL,
    taken = 0
WHERE id = $4

-- name: head_put_off
-- The head of a mailbox that was put off: it waits with the mailbox, without an attempt.
UPDATE message SET takeovers = takeovers + $1, available_at = $2, updated_at = $3 WHERE id = $4 AND status || '' = 'pending'

-- name: mailbox_idle
-- A due mailbox without a waking row: nothing to do.
UPDATE mailbox SET due = NULL, holder = NULL WHERE id = $1

-- name: held_by_nonce
-- What a repeated claim still holds.
SELECT id FROM mailbox WHERE holder = $1 AND nonce = $2 AND due IS NOT NULL

-- name: mailbox_renew
-- Renew leases under their epochs; those that are still held, each with the stop that is stored for its turn.
UPDATE mailbox SET due = greatest(mailbox.due, v.due)
FROM unnest($1::float8[], $2::bigint[], $3::bigint[]) AS v (due, id, epoch)
WHERE mailbox.id = v.id AND mailbox.epoch = v.epoch AND holder IS NOT NULL
RETURNING mailbox.id, stop_at, stop_grace

-- name: void_leases
-- End the leases of one holder kind: due now, holder gone. The head stays `processing`, so the next claim counts a takeover.
UPDATE mailbox SET due = $1, holder = NULL WHERE holder IS NOT NULL AND holder_kind = $2

-- name: void_stuck
-- A new owner has no stuck task.
UPDATE mailbox SET stuck = NULL WHERE stuck IS NOT NULL

-- name: due_after
-- When the next mailbox that is not due yet will be. One that is due, and that this transaction could not lock, is locked by another
-- one at this moment: nobody will say when it is free, so it is worth another look in a twentieth of a second.
SELECT CASE WHEN EXISTS (
    SELECT FROM mailbox WHERE due <= t.now AND id <> ALL((SELECT current_setting('callboard.locked')::bigint[])::bigint[])
) THEN t.now + 0.05 ELSE (SELECT min(due) FROM mailbox WHERE due > t.now) END
FROM (SELECT current_setting('callboard.now')::float8 AS now) AS t
