-- usage: JSON of what the closed steps of the request have used; NULL: nothing yet, or an older program
-- ended it.
ALTER TABLE requests ADD COLUMN usage BLOB;

-- What the requests have used that ended on a day (UTC), by user, agent and model. Cost counts
-- billionths of the currency of the prices.
CREATE TABLE usage (
  day TEXT NOT NULL,
  user_id TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  provider_id TEXT NOT NULL,
  model TEXT NOT NULL,
  requests INTEGER NOT NULL,
  requests_reported INTEGER NOT NULL,
  requests_estimated INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  input_tokens INTEGER NOT NULL,
  cached_input_tokens INTEGER NOT NULL,
  output_tokens INTEGER NOT NULL,
  reasoning_tokens INTEGER NOT NULL,
  estimated_input_tokens INTEGER NOT NULL,
  estimated_output_tokens INTEGER NOT NULL,
  cost INTEGER NOT NULL,
  PRIMARY KEY (day, user_id, agent_id, provider_id, model)
) WITHOUT ROWID;
