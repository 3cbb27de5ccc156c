-- moving: '' while servers may use this store. Otherwise the store is on its way to another
-- database, or was moved there, and package store writes what happens.
--
-- place: the name of the database in which the log was made. A copy has another name.
ALTER TABLE log
  ADD COLUMN moving TEXT COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN place TEXT COLLATE "C" NOT NULL DEFAULT '';
