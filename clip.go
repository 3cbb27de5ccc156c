package loquat

// Excerpt is the number of characters of an input that an error message quotes.
const Excerpt = 80

// The bounds on the texts of an Error, in characters.
const (
	MaxDetail   = 4000 // of a detail, and of a field's message
	maxLocation = 400  // of a field's location
)

// Clip returns at most n characters of text. If text is longer, the result ends in "…".
func Clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	if n <= 0 {
		return ""
	}
	count, end := 0, 0
	for at := range text {
		if count == n-1 {
			end = at
		}
		if count == n {
			return text[:end] + "…"
		}
		count++
	}
	return text
}
