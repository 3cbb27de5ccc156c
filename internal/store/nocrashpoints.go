//go:build !crashpoints

package store

// With the build tag crashpoints the process can be told to die at these points.

func beforeCommit() {}
func afterCommit()  {}
