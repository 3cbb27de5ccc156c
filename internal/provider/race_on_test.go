//go:build race

package provider

// raceCopies is how many more copies of a text are made under the race detector, which keeps
// the compiler from avoiding them.
const raceCopies = 1
