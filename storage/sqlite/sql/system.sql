-- What the runtime itself asks, over all scopes: never on behalf of a principal, and never text that anybody wrote.

-- name: store_stats
-- Counts for health: due mailboxes, held leases.
SELECT (SELECT count(*) FROM mailbox WHERE due <= :now), (SELECT count(*) FROM mailbox WHERE holder IS NOT NULL)

-- name: stuck_sessions
-- Sessions whose task survived its cancel, with the process that has it.
SELECT recipient, stuck FROM mailbox WHERE stuck IS NOT NULL LIMIT 100
