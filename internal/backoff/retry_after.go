package backoff

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// maxRetryAfter is the longest Retry-After that is accepted. Longer ones are ignored.
const maxRetryAfter = 365 * 24 * time.Hour

// ParseRetryAfter reads a Retry-After header: seconds or an HTTP date, rounded up to seconds. For a
// past date, or any other text, it returns 0.
func ParseRetryAfter(s string) time.Duration {
	s = strings.TrimSpace(s)
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(seconds) || seconds <= 0 || seconds > maxRetryAfter.Seconds() {
			return 0
		}
		return time.Duration(math.Ceil(seconds * float64(time.Second)))
	}
	at, err := http.ParseTime(s)
	if err != nil {
		return 0
	}
	wait := time.Until(at)
	if wait <= 0 || wait > maxRetryAfter {
		return 0
	}
	return (wait + time.Second - 1).Truncate(time.Second)
}
