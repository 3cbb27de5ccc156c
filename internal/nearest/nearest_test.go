package nearest

import "testing"

func TestHint(t *testing.T) {
	for _, c := range []struct {
		name   string
		within int
		want   string
	}{
		{"comand", 2, "; did you mean command?"},
		{"", 2, "; did you mean id?"},
		{"kind", 1, ""},
		{"lable", 1, ""},
		{"lable", 2, "; did you mean label?"},
		{"label", 0, "; did you mean label?"},
	} {
		if got := Hint(c.name, c.within, "command", "label", "id"); got != c.want {
			t.Errorf("%q within %d: %q, want %q", c.name, c.within, got, c.want)
		}
	}
	if got := Hint("x", 3); got != "" {
		t.Errorf("without known names: got %q", got)
	}
}
