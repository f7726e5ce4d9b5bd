-- What must follow pg_restore, before any process is started: `psql -1 -v ON_ERROR_STOP=1 -f restored.sql URL`. What sqlite/restored.sql is
-- for a file: the reasons are there.

UPDATE mailbox SET last_seq = last_seq + 1000000000, last_event = last_event + 1000000000, epoch = epoch + 1000000000;

SELECT setval(pg_get_serial_sequence('mailbox', 'id'), nextval(pg_get_serial_sequence('mailbox', 'id')) + 1000000000);
SELECT setval(pg_get_serial_sequence('message', 'id'), nextval(pg_get_serial_sequence('message', 'id')) + 1000000000);
SELECT setval(pg_get_serial_sequence('token', 'n'), nextval(pg_get_serial_sequence('token', 'n')) + 1000000000);

UPDATE mailbox SET due = extract(epoch FROM statement_timestamp()), holder = NULL WHERE holder IS NOT NULL;
UPDATE mailbox SET stuck = NULL WHERE stuck IS NOT NULL;
DELETE FROM process;
DELETE FROM ticket;

INSERT INTO meta (key, value) VALUES ('restored_at', extract(epoch FROM statement_timestamp()))
ON CONFLICT (key) DO UPDATE SET value = excluded.value;
