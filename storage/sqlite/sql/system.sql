-- What the runtime itself asks, over all scopes: never on behalf of a principal, and never text that anybody wrote.

-- name: store_stats
-- Counts for health: due mailboxes, held leases. A held mailbox is due when its lease ends, so both stand in the index of what is due.
SELECT (SELECT count(*) FROM mailbox WHERE due <= :now),
    (SELECT count(*) FROM mailbox WHERE due IS NOT NULL AND holder IS NOT NULL)

-- name: oldest_due
-- Since when the mailbox waits that has waited longest without anybody holding it.
SELECT due FROM mailbox WHERE due <= :now AND holder IS NULL ORDER BY due LIMIT 1

-- name: schema_version
-- The newest migration that was applied.
SELECT max(version) FROM migration

-- name: stuck_sessions
-- Sessions whose task survived its cancel, with the process that has it.
SELECT recipient, stuck FROM mailbox WHERE stuck IS NOT NULL LIMIT 100

-- name: sessions_moved
-- Of the sessions in a JSON object {id: newest number known}, those that have a newer one, or were deleted.
SELECT s.id FROM json_each(:positions) AS p CROSS JOIN session AS s ON s.id = p.key CROSS JOIN mailbox AS m ON m.id = s.mailbox
WHERE m.last_event > p.value OR s.deleted_at IS NOT NULL

-- name: restored
-- When this store was restored from a backup, and when that backup was made.
SELECT (SELECT value FROM meta WHERE key = 'restored_at'), (SELECT value FROM meta WHERE key = 'restored_from')

-- name: leases_run_out
-- Leases whose holder let them run out, and that nobody has taken yet.
SELECT count(*) FROM mailbox WHERE due <= :now AND holder IS NOT NULL

-- name: processes
-- Processes that claim, with how many leases each holds, and how many of those have run out.
SELECT p.holder, p.seen_at, coalesce(h.held, 0), coalesce(h.late, 0)
FROM process AS p LEFT JOIN (
    SELECT holder, count(*) AS held, sum(CASE WHEN due <= :now THEN 1 ELSE 0 END) AS late
    FROM mailbox WHERE due IS NOT NULL AND holder IS NOT NULL GROUP BY holder
) AS h ON h.holder = p.holder
ORDER BY p.holder

-- name: oldest_open
-- The message that has been open for longest, also one that waits for its time or for no time at all. Open rows have an index, which is
-- read through; in the order of rows (hence the zero) all that are done would be looked at first.
SELECT uid, created_at FROM message WHERE id = (SELECT min(id + 0) FROM message WHERE status IN ('pending', 'processing'))
