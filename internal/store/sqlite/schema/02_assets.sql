-- Images that were uploaded to sessions. Their bytes are files by hash, beside the
-- database.
CREATE TABLE assets (
  sid INTEGER NOT NULL,
  asset_id TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  media_type TEXT NOT NULL,
  size INTEGER NOT NULL,
  name TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (sid, asset_id)
) WITHOUT ROWID;
CREATE INDEX assets_by_hash ON assets (sha256);

-- Which messages ever named which asset. A use counts while the message has a version
-- that holds.
CREATE TABLE asset_uses (
  sid INTEGER NOT NULL,
  asset_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (sid, asset_id, seq)
) WITHOUT ROWID;

-- Hashes that lost an owner, perhaps their last, and whose files have to be looked at.
CREATE TABLE freed_files (
  sha256 TEXT PRIMARY KEY
) WITHOUT ROWID;
