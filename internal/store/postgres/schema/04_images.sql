-- Where the bytes of images are. An object is one copy of the bytes of an image, in image_pieces
-- or in another store. Its name is never used again, so an object without a row here can be
-- removed at any time. state: 'storing' while the bytes may be incomplete; 'stored'; 'unused'
-- when the object is to be removed. at: when the object got this state.
CREATE TABLE image_objects (
  name TEXT COLLATE "C" PRIMARY KEY,
  sha256 TEXT COLLATE "C" NOT NULL,
  size BIGINT NOT NULL,
  state TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL
);
CREATE UNIQUE INDEX image_objects_stored ON image_objects (sha256) WHERE state = 'stored';
CREATE INDEX image_objects_left ON image_objects (state, at) WHERE state <> 'stored';

-- The bytes of objects that are in this database, in pieces, so that no row is large.
CREATE TABLE image_pieces (
  name TEXT COLLATE "C" NOT NULL REFERENCES image_objects (name) ON DELETE CASCADE,
  piece BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (name, piece)
);
ALTER TABLE image_pieces ALTER body SET STORAGE EXTERNAL; -- images are compressed already
