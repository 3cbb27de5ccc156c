//go:build race

package provider

// raceCopies is the number of additional copies of a text under the race detector, which
// prevents the compiler from eliding them.
const raceCopies = 1
