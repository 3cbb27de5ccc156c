package ui

// Limits that the tests check.
const (
	MaxConditionDepth    = maxConditionDepth
	MaxElementErrors     = maxElementErrors
	MaxElementsPerPlugin = maxElementsPerPlugin
)

// DecodeRaw, EncodeText and Equal are how the rules read, print and compare JSON values. The
// tests use them so that they count numbers the same way.
var (
	DecodeRaw  = decode
	EncodeText = encodeText
	Equal      = equal
)
