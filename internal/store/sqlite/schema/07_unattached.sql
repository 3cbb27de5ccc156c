-- Assets that no message has ever used.
CREATE TABLE unattached (
  sid INTEGER NOT NULL,
  asset_id TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  PRIMARY KEY (sid, asset_id)
) WITHOUT ROWID;
CREATE INDEX unattached_by_age ON unattached (created_at);

INSERT INTO unattached (sid, asset_id, created_at)
  SELECT sid, asset_id, created_at FROM assets a
  WHERE NOT EXISTS (SELECT 1 FROM asset_uses u WHERE u.sid = a.sid AND u.asset_id = a.asset_id);
