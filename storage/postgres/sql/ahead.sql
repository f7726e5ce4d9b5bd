-- What has no like on SQLite, where asking costs no way to a server.

-- name: message_ids
-- Rows for so many new messages. Their mailboxes are locked: whoever has that lock later gets later rows, as the order of a mailbox is
-- that of its rows.
SELECT nextval('message_id_seq') FROM generate_series(1, $1::int)

-- name: messages_put
-- New pending messages in these rows; a taken id or key fails them all.
INSERT INTO message (
    id, scope, mailbox, uid, message_id, principal, digest, transport, destination_peer, sender, sender_kind, sender_label,
    kind, wakes, steers, payload, status, seq, max_attempts, available_at, created_at, updated_at, chain, hops, reply_to,
    requeued_from
) SELECT * FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::bytea[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::int[], $15::int[], $16::text[], $17::text[], $18::bigint[],
    $19::bigint[], $20::float8[], $21::float8[], $22::float8[], $23::text[], $24::bigint[], $25::text[], $26::text[]
)
