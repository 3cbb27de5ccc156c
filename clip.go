package loquat

// Excerpt is how many characters of an input an error repeats.
const Excerpt = 80

// The bounds of an Error, in characters.
const (
	MaxDetail   = 4000 // of a detail, and of a field's message
	maxLocation = 400  // of a field's location
)

// Clip returns at most n characters of text. When text is longer, the last of them
// is "…".
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
