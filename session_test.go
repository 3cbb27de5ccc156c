package loquat_test

import (
	"errors"
	"strings"
	"testing"

	"loquat"
)

// The names of roles stand in configurations, so they are plain. Those of users come from other systems.
func TestNamesOfRolesAndUsers(t *testing.T) {
	for kind, c := range map[string]struct {
		check       func(location, name string) error
		good, wrong []string
	}{
		"role": {
			loquat.CheckRole,
			[]string{"a", "z", "A", "Z", "0", "9", "-", "_", "Night_shift-2", strings.Repeat("x", 64)},
			[]string{"", strings.Repeat("x", 65), "a b", "a\n", "ä", "`", "{", "@", "[", "/", ":", "a.b"},
		},
		"user": {
			loquat.CheckUser,
			[]string{"a", "ann@example.org", "Ann Lee", "安", "<b>\"'&", strings.Repeat("ä", 128)},
			[]string{"", strings.Repeat("ä", 129), "a\tb", "a\x00", "\xff", "a\u200b", "a\u2028"},
		},
	} {
		for _, name := range c.good {
			if err := c.check("body.name", name); err != nil {
				t.Errorf("the %s %q: %v", kind, name, err)
			}
		}
		for _, name := range c.wrong {
			e, _ := errors.AsType[*loquat.Error](c.check("body.name", name))
			if e == nil || e.Code != loquat.CodeInvalid || len(e.Fields) != 1 || e.Fields[0].Location != "body.name" {
				t.Errorf("the %s %q: %+v", kind, name, e)
			}
		}
	}
}
