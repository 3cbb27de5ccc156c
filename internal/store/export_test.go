package store

// RuleNames returns the names of the rules that Verify checks.
func RuleNames() (names []string) {
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}
