//go:build !crashpoints

package store

// The build tag crashpoints makes the process exit at these points, for tests.

func beforeCommit() {}
func afterCommit()  {}
