package config

import "loquat"

// Encode, MustDecode and AsObject are how the package writes and reads JSON. The tests use
// them so that they compare the same texts.
var (
	Encode     = encode
	MustDecode = mustDecode
	AsObject   = asObject
)

// ProbeTimeout is how long the discovery of a backend waits.
const ProbeTimeout = probeTimeout

// Raw returns the configuration with its references expanded, secrets included.
func (c *Config) Raw() loquat.Object { return c.raw }
