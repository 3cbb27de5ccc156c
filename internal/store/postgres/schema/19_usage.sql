-- usage: JSON of what the closed steps of the request have used; NULL: nothing yet, or an older program
-- ended it.
-- least: 7
ALTER TABLE requests ADD COLUMN usage BYTEA;

-- What the requests have used that ended on a day (UTC), by user, agent and model. Cost counts
-- billionths of the currency of the prices.
CREATE TABLE usage (
  day TEXT COLLATE "C" NOT NULL,
  user_id TEXT COLLATE "C" NOT NULL,
  agent_id TEXT COLLATE "C" NOT NULL,
  provider_id TEXT COLLATE "C" NOT NULL,
  model TEXT COLLATE "C" NOT NULL,
  requests BIGINT NOT NULL,
  requests_reported BIGINT NOT NULL,
  requests_estimated BIGINT NOT NULL,
  attempts BIGINT NOT NULL,
  input_tokens BIGINT NOT NULL,
  cached_input_tokens BIGINT NOT NULL,
  output_tokens BIGINT NOT NULL,
  reasoning_tokens BIGINT NOT NULL,
  estimated_input_tokens BIGINT NOT NULL,
  estimated_output_tokens BIGINT NOT NULL,
  cost BIGINT NOT NULL,
  PRIMARY KEY (day, user_id, agent_id, provider_id, model)
);
