//go:build !unix

package binary

import "testing"

// StartServers starts a server with a configuration.
func StartServers(t *testing.T, _ int, config string) []*Process {
	t.Helper()
	return singleServer(t, config)
}

// withStore returns the arguments as they are: the tests start PostgreSQL only on Unix.
func withStore(args []string) ([]string, error) { return args, nil }
