-- How many calls that are no requests of a session run for a meter, at one process.
-- least: 7
CREATE TABLE meter_calls (
  meter TEXT COLLATE "C" NOT NULL,
  owner TEXT COLLATE "C" NOT NULL,
  calls BIGINT NOT NULL,
  PRIMARY KEY (meter, owner)
);
