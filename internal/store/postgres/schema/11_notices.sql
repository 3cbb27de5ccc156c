-- The key of what notifications have of commits: whoever may connect to the database can listen.
-- least: 7
ALTER TABLE log ADD COLUMN notice_key BYTEA NOT NULL DEFAULT decode(replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''), 'hex');
