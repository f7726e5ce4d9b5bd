-- Accepting, cancelling and requeuing messages.

-- name: targets_for_enqueue
-- The mailboxes of recipients in a scope with their counters, and whether their sessions still take mail.
SELECT v.recipient, v.scope, m.id, m.last_seq, m.last_event, m.depth, m.due, s.deleted_at, s.kind, s.id
FROM unnest($1::text[], $2::bigint[]) AS v (recipient, scope)
CROSS JOIN LATERAL (SELECT * FROM mailbox AS x WHERE x.recipient = v.recipient OFFSET 0) AS m
LEFT JOIN session AS s ON s.mailbox = m.id
WHERE m.scope = v.scope

-- name: message_insert
-- New pending messages; a taken id or key inserts nothing.
INSERT INTO message (
    scope, mailbox, uid, message_id, principal, digest, transport, destination_peer, sender, sender_kind, sender_label,
    kind, wakes, steers, payload, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops, reply_to,
    requeued_from
) SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::int[], $14::int[], $15::text[], $16::text[], $17::bigint[], $18::bigint[],
    $19::float8[], $20::float8[], $21::float8[], $22::text[], $23::bigint[], $24::text[], $25::text[]
)
ON CONFLICT DO NOTHING
RETURNING id, uid

-- name: message_by_key
-- The message that a sender's own id names, or that has this id of ours, for the repeat rule.
SELECT uid, message_id, mailbox, digest, status, seq FROM message
WHERE scope = $1 AND (uid = $2 OR (message_id = $3 AND principal = $4))

-- name: messages_by_key
-- The messages that senders' own ids name already.
SELECT v.scope, v.message_id, v.principal, m.uid, m.message_id, m.mailbox, m.digest, m.status, m.seq
FROM unnest($1::bigint[], $2::text[], $3::text[]) AS v (scope, message_id, principal) CROSS JOIN LATERAL (
    SELECT * FROM message AS x
    WHERE x.scope = v.scope AND x.message_id = v.message_id AND x.principal = v.principal OFFSET 0
) AS m

-- name: entry_insert
-- Rows of transcripts.
INSERT INTO entry (scope, mailbox, seq, role, content, message, at)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::float8[])

-- name: event_insert
-- Events; their numbers were taken from their mailboxes in this transaction.
INSERT INTO event (scope, mailbox, n, kind, turn, seq, data, at)
SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::float8[]
)

-- name: mailbox_accept
-- Count new messages in and wake the mailbox if it is idle; a lease or a back-off is never touched.
UPDATE mailbox SET last_seq = v.last_seq, last_event = v.last_event, depth = depth + v.more, due = coalesce(due, v.wake),
    updated_at = v.at
FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::float8[], $5::float8[], $6::bigint[])
    AS v (last_seq, last_event, more, wake, at, id)
WHERE mailbox.id = v.id

-- name: pair_count
-- How many agent messages a sender put into a mailbox since a time.
SELECT count(*) FROM message WHERE mailbox = $1 AND sender = $2 AND kind = 'agent_message' AND created_at > $3

-- name: message_for_change
-- What cancel, requeue and fail need of a message.
SELECT e.id, e.mailbox, e.uid, e.message_id, e.status, e.reason, e.kind, e.sender, e.sender_kind, e.chain, e.hops,
    e.payload, e.max_attempts, e.seq, e.claims, m.recipient, m.last_event, m.holder, e.transport, e.destination_peer,
    e.sender_label, e.reply_to, s.id, s.parent, e.pruned_at
FROM message AS e JOIN mailbox AS m ON m.id = e.mailbox LEFT JOIN session AS s ON s.mailbox = m.id
WHERE e.uid = $1 AND e.scope = $2

-- name: message_fail
-- Fail an open message that stands in a given state.
UPDATE message SET status = 'failed', reason = v.reason, last_error = coalesce(v.error, last_error), absorbed_by = NULL,
    updated_at = v.at
FROM unnest($1::text[], $2::text[], $3::float8[], $4::bigint[], $5::text[]) AS v (reason, error, at, id, status)
WHERE message.id = v.id AND message.status || '' = v.status

-- name: entry_content
-- The text of a message, by its place in the transcript.
SELECT content FROM entry WHERE mailbox = $1 AND seq = $2

-- name: mailbox_settle
-- Recompute when an unheld mailbox needs a look, after messages left it from outside a turn.
UPDATE mailbox SET last_event = $1, depth = depth - $2, updated_at = $3, due = CASE WHEN holder IS NULL THEN (
    SELECT x.available_at FROM message AS x
    WHERE x.mailbox = mailbox.id AND x.wakes = 1 AND x.status IN ('pending', 'processing') ORDER BY x.id LIMIT 1
) ELSE due END
WHERE id = $4
