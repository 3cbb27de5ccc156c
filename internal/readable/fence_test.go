package readable_test

import (
	"testing"

	"loquat/internal/readable"
)

func TestFence(t *testing.T) {
	for line, want := range map[string][2]string{
		"```": {"```", ""}, "  ```` go run \r": {"````", "go run"}, "~~~ a`b": {"~~~", "a`b"},
		"```ls -la```": {}, "``": {}, "text ```": {}, "": {}, "```a`": {},
	} {
		if marker, info := readable.Fence(line); marker != want[0] || info != want[1] {
			t.Errorf("%q: %q, %q", line, marker, info)
		}
	}
	for _, c := range []struct {
		line, marker string
		want         bool
	}{{"```", "```", true}, {"  ````\r", "```", true}, {"```", "````", false}, {"```python", "```", false}, {"~~~", "```", false}, {"", "```", false}} {
		if got := readable.EndsFence(c.line, c.marker); got != c.want {
			t.Errorf("%q ends %q: %v", c.line, c.marker, got)
		}
	}
}
