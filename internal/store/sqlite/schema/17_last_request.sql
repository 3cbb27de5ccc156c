-- The requests of a session by their end, to find the last one.
CREATE INDEX requests_ended ON requests (sid, ended_at, rid) WHERE ended_at IS NOT NULL AND steered_into IS NULL;
