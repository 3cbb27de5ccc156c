package jwt

import (
	"testing"
	"time"
)

// NewThrough is New with the transport for keys.
var NewThrough = newVerifier

// SetFetchTimeout changes for a test how long an issuer may take to answer.
func SetFetchTimeout(t *testing.T, timeout time.Duration) {
	before := fetchTimeout
	fetchTimeout = timeout
	t.Cleanup(func() { fetchTimeout = before })
}
