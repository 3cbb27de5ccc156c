-- known_schema: the newest schema that the node's program knows. Programs that know no newer
-- schema than 7 do not write it.
-- least: 7
ALTER TABLE nodes ADD COLUMN known_schema BIGINT NOT NULL DEFAULT 7;
