-- What prompts are made of beside the transcript. Each read names tenant and project, so that no row is read without both (NS-5).

-- name: paths_of
-- Living sessions with a path above another but one, by path, along the index of paths.
SELECT s.id, s.path, s.agent
FROM scope AS c JOIN session AS s ON s.scope = c.id AND s.path IS NOT NULL AND s.deleted_at IS NULL
WHERE c.tenant = :tenant AND c.project = :project AND s.kind <> 'internal' AND s.id <> :id AND s.path > :after
ORDER BY s.path LIMIT :limit

-- name: paths_count
-- How many living sessions have a path, but one, as far as anybody wants to know.
SELECT count(*) FROM (
    SELECT 1 FROM scope AS c JOIN session AS s ON s.scope = c.id AND s.path IS NOT NULL AND s.deleted_at IS NULL
    WHERE c.tenant = :tenant AND c.project = :project AND s.kind <> 'internal' AND s.id <> :id
    LIMIT :limit
)

-- name: children_of
-- The running children of a session, and whether a turn of theirs runs.
SELECT x.id, x.agent, x.title, m.head IS NOT NULL
FROM scope AS c JOIN session AS x ON x.parent = :id AND x.child_state = 'running' AND x.scope = c.id
JOIN mailbox AS m ON m.id = x.mailbox
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
INSERT INTO summary (mailbox, scope, upto, text, at) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (mailbox) DO UPDATE SET upto = excluded.upto, text = excluded.text, at = excluded.at
WHERE excluded.upto > upto
