-- moving: '' while servers may use this store. Otherwise the store is on its way to another
-- database, or was moved there, and package store writes what happens.
ALTER TABLE log ADD COLUMN moving TEXT NOT NULL DEFAULT '';
