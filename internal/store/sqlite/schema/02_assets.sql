-- Images of sessions. The image files are outside the database and named by their hash.
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

-- Which messages have ever used which asset. A use counts while the message has a current
-- version.
CREATE TABLE asset_uses (
  sid INTEGER NOT NULL,
  asset_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  PRIMARY KEY (sid, asset_id, seq)
) WITHOUT ROWID;

-- Hashes that lost an owner, perhaps their last. Their files must be checked.
CREATE TABLE freed_files (
  sha256 TEXT PRIMARY KEY
) WITHOUT ROWID;
