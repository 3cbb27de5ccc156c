-- The store may be on its way to another database, or may have been moved there. moving: '' while
-- servers may use this store; otherwise what package store writes about the move.
ALTER TABLE log ADD COLUMN moving TEXT COLLATE "C" NOT NULL DEFAULT '';
