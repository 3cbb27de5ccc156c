// Package nearest finds the known name that an unknown one is likely a slip of.
//
// It promises a pure function that counts letters. It knows no words.
package nearest

// Hint asks whether the known name nearest to an unknown one is meant, to be put
// behind what is wrong with it. It is "" when none is within a number of insertions,
// deletions and substitutions.
func Hint(name string, within int, known ...string) string {
	best, nearest := within+1, ""
	for _, k := range known {
		if max(len(name), len(k))-min(len(name), len(k)) >= best {
			continue // they differ by that much at least, and to count costs the product of the lengths
		}
		if d := distance(name, k); d < best {
			best, nearest = d, k
		}
	}
	if nearest == "" {
		return ""
	}
	return "; is " + nearest + " meant?"
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
