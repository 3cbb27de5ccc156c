-- Finds a message by its index. From first_index on, until the next row of the session, the
-- message at index i has seq = first_seq + i - first_index. Before the first row, and in a
-- session without rows, seq = i.
CREATE TABLE message_runs (
  sid INTEGER NOT NULL,
  first_index INTEGER NOT NULL,
  first_seq INTEGER NOT NULL,
  PRIMARY KEY (sid, first_index)
) WITHOUT ROWID;

INSERT INTO message_runs (sid, first_index, first_seq)
  SELECT sid, min(i), min(seq) FROM
    (SELECT m.sid, m.seq, row_number() OVER (PARTITION BY m.sid ORDER BY m.seq) - 1 AS i
      FROM messages m JOIN sessions s ON s.sid = m.sid WHERE m.rev_to IS NULL AND s.next_seq <> s.message_count)
  GROUP BY sid, seq - i HAVING min(seq) <> min(i);

-- Files of older versions know no edited_rev of changes before step 6.
UPDATE sessions SET edited_rev = rev WHERE edited_rev = 0
  AND EXISTS (SELECT 1 FROM messages m WHERE m.sid = sessions.sid AND m.rev_to IS NOT NULL);
