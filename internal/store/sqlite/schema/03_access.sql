-- Credentials. Secrets are stored only as SHA-256 digests.

-- kind: token, device or browser. A browser session acts for the credential whose digest
-- is bearer.
CREATE TABLE access_keys (
  key_id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  scope TEXT NOT NULL,
  session_id TEXT NOT NULL,
  digest BLOB NOT NULL UNIQUE,
  bearer BLOB NOT NULL,
  created_at INTEGER NOT NULL,
  expires_at INTEGER,
  used_on TEXT NOT NULL
);

-- Pairing codes. wrong counts failed attempts.
CREATE TABLE pairing_codes (
  public TEXT PRIMARY KEY,
  digest BLOB NOT NULL,
  scope TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  wrong INTEGER NOT NULL
);
