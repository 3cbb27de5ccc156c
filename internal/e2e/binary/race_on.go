//go:build race

package binary

// raceFlags are the flags of go build that the tests themselves were built with.
var raceFlags = RaceFlags
