-- How many calls that are no requests of a session run for a meter, at one process.
CREATE TABLE meter_calls (
  meter TEXT NOT NULL,
  owner TEXT NOT NULL,
  calls INTEGER NOT NULL,
  PRIMARY KEY (meter, owner)
) WITHOUT ROWID;
