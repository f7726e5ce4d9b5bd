-- What makes the copy of a database a database that goes on by itself. One transaction, behind the migrations. Parameters: jump, now, made_at.

-- What was given out after the copy was made is in no row of it. None of these numbers may be given out again: clients and agents have seen
-- them (EVT-2, MSG-1), and the epoch of a lease that was lost with its row must open no mailbox (RT-8).
UPDATE mailbox SET last_seq = last_seq + :jump, last_event = last_event + :jump, epoch = epoch + :jump;

-- The same for rows: a mailbox is part of a lease, a message or token of a listing's cursor.
INSERT INTO sqlite_sequence (name, seq)
SELECT t.name, 0 FROM sqlite_master AS t
WHERE t.name IN ('mailbox', 'message', 'token') AND t.name NOT IN (SELECT s.name FROM sqlite_sequence AS s);
UPDATE sqlite_sequence SET seq = seq + :jump;

-- Whoever held a mailbox then, process or reader, holds it no more. The head stays `processing`: the next claim counts a takeover.
UPDATE mailbox SET due = :now, holder = NULL WHERE holder IS NOT NULL;
UPDATE mailbox SET stuck = NULL WHERE stuck IS NOT NULL;
DELETE FROM process;

-- Tickets are used once, and one that was used since looks unused here.
DELETE FROM ticket;

-- For the doctor. When the copy was made is no longer true of this database.
INSERT OR REPLACE INTO meta (key, value) VALUES ('restored_at', :now), ('restored_from', :made_at);
DELETE FROM meta WHERE key = 'backup_at';
