package client

// Limits that the tests check.
const (
	MaxAttempts = maxAttempts
	Silence     = silence
)
