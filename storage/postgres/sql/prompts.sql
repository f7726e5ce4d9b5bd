-- What prompts are made of beside the transcript. Each read names tenant and project, so that no row is read without both (NS-5).

-- name: paths_of
-- Living sessions with a path above another but one, by path, along the index of paths.
SELECT s.id, s.path, s.agent
FROM scope AS c CROSS JOIN LATERAL (
    SELECT * FROM session AS x WHERE x.scope = c.id AND x.path > :after AND x.deleted_at IS NULL
        AND x.kind <> 'internal' AND x.id <> :id ORDER BY x.path LIMIT :limit
) AS s
WHERE c.tenant = :tenant AND c.project = :project ORDER BY s.path

-- name: paths_count
-- How many living sessions have a path, but one, as far as anybody wants to know.
SELECT count(*) FROM (
    SELECT 1 FROM scope AS c CROSS JOIN LATERAL (
        SELECT 1 FROM session AS x WHERE x.scope = c.id AND x.path > '' AND x.deleted_at IS NULL
            AND x.kind <> 'internal' AND x.id <> :id LIMIT :limit
    ) AS s
    WHERE c.tenant = :tenant AND c.project = :project
) AS q

-- name: children_of
-- The running children of a session, and whether a turn of theirs runs.
SELECT x.id, x.agent, x.title, (m.head IS NOT NULL)::int
FROM scope AS c CROSS JOIN LATERAL (
    SELECT * FROM session AS y WHERE y.parent = :id AND y.child_state = 'running' AND y.scope = c.id OFFSET 0
) AS x JOIN mailbox AS m ON m.id = x.mailbox
WHERE c.tenant = :tenant AND c.project = :project AND x.deleted_at IS NULL AND x.kind <> 'internal'
ORDER BY x.created_at, x.id LIMIT :limit

-- name: queued_of
-- How many messages wait for a session, by kind, as far as anybody wants to know.
SELECT q.kind, count(*) FROM (
    SELECT h.kind FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN message AS h ON h.mailbox = s.mailbox
    WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project
        AND h.status IN ('pending', 'processing') AND h.status = 'pending' LIMIT :limit
) AS q GROUP BY q.kind

-- name: summary_of
-- What was made of a session's older entries.
SELECT y.upto, y.text
FROM scope AS c JOIN session AS s ON s.scope = c.id JOIN summary AS y ON y.mailbox = s.mailbox
WHERE s.id = :id AND c.tenant = :tenant AND c.project = :project

-- name: summary_put
-- Keep what was made of more entries than before.
INSERT INTO summary (mailbox, scope, upto, text, at) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (mailbox) DO UPDATE SET upto = excluded.upto, text = excluded.text, at = excluded.at
WHERE excluded.upto > summary.upto
