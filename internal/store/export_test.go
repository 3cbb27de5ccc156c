package store

// RuleNames are the names of what Verify compares.
func RuleNames() (names []string) {
	for _, r := range rules {
		names = append(names, r.name)
	}
	return names
}
