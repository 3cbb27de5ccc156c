-- role: of the configuration; it says what the key, or the device that claims the code, may use.
-- least: 7
ALTER TABLE access_keys ADD COLUMN role TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE pairing_codes ADD COLUMN role TEXT COLLATE "C" NOT NULL DEFAULT '';

-- meter: the user or the token for which the request counts; empty: it counts for none. charged: the
-- tokens that the meter has counted so far.
ALTER TABLE requests ADD COLUMN meter TEXT COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE requests ADD COLUMN charged BIGINT NOT NULL DEFAULT 0;
CREATE INDEX requests_metered ON requests (meter) WHERE meter <> '' AND status IN ('queued', 'running');

-- What meters have counted: requests by the second (of Unix time) in which they began, tokens by day (UTC),
-- with those of the largest request.
CREATE TABLE meter_seconds (
  meter TEXT COLLATE "C" NOT NULL,
  second BIGINT NOT NULL,
  requests BIGINT NOT NULL,
  PRIMARY KEY (meter, second)
);
CREATE TABLE meter_days (
  meter TEXT COLLATE "C" NOT NULL,
  day TEXT COLLATE "C" NOT NULL,
  tokens BIGINT NOT NULL,
  largest BIGINT NOT NULL,
  PRIMARY KEY (meter, day)
);
