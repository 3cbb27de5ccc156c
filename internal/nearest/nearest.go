// Package nearest finds the known name that is most similar to a misspelled one.
package nearest

// Hint returns a question for the end of an error message, such as "; did you mean label?".
// It names the known name that is nearest to name by the number of insertions, deletions
// and substitutions. If every known name needs more than within of them, it returns "".
func Hint(name string, within int, known ...string) string {
	best, nearest := within+1, ""
	for _, k := range known {
		if max(len(name), len(k))-min(len(name), len(k)) >= best {
			continue // the distance is at least the difference of the lengths, and costly to compute for long names
		}
		if d := distance(name, k); d < best {
			best, nearest = d, k
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + nearest + "?"
}

// distance counts the insertions, deletions and substitutions between a and b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			substituted := diagonal
			if a[i] != b[j] {
				substituted++
			}
			diagonal = row[j+1]
			row[j+1] = min(substituted, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
