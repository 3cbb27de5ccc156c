-- on_busy says how a queued request entered the queue of its session; it is empty in rows of older
-- programs. steered_into is the request_id of the request that took in the message of this one.
ALTER TABLE requests ADD COLUMN on_busy TEXT NOT NULL DEFAULT '';
ALTER TABLE requests ADD COLUMN steered_into TEXT;
