-- Who may come in. Of secrets there are SHA-256 digests only.

-- kind: token, device, or browser, which stands for the key whose digest is bearer.
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

-- Codes that a device may claim; wrong counts the wrong secrets that were tried.
CREATE TABLE pairing_codes (
  public TEXT PRIMARY KEY,
  digest BLOB NOT NULL,
  scope TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  wrong INTEGER NOT NULL
);
