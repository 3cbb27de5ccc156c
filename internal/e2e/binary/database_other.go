//go:build !unix

package binary

// withStore returns the arguments as they are: the tests start PostgreSQL only on Unix.
func withStore(args []string) ([]string, error) { return args, nil }
