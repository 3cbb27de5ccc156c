package config_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/config"
)

// object returns a JSON object with n members, each made from its number.
func object(n int, member string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ","+member, i)
	}
	return "{" + strings.TrimPrefix(b.String(), ",") + "}"
}

// check returns the problems of a configuration.
func check(t *testing.T, text string) []config.Problem {
	t.Helper()
	c, problems := config.Parse([]byte(text), world{}.env())
	if c == nil {
		t.Fatalf("Parse: %v", problems)
	}
	return config.InOrder(problems, c.Check(around))
}

// However many problems a configuration has, a hundred errors and a hundred warnings are
// listed, always the same ones, and the others are counted.
func TestProblemsAreBounded(t *testing.T) {
	const n = 3000
	const provider = `"main": {"provider": "generic", "model": "m"`
	references := object(n, `"k%05d": "${none"`)
	for _, tt := range []struct {
		name, text       string
		errors, warnings int
	}{
		{"unknown keys", `{"providers": {` + provider + `}}, "agents": {"default": ` + object(n, `"k%05d": 1`) + `}}`, 0, n},
		{"a hundred", `{"providers": {` + provider + `}}, "agents": {"default": ` + object(100, `"k%05d": 1`) + `}}`, 0, 100},
		{"an error among warnings", `{"providers": {` + provider + `}, "z": {"model": "m"}}, "agents": {"default": ` + strings.Replace(object(n, `"k%05d": 1`), "{", `{"provider": "main", `, 1) + `}}`, 1, n},
		{"references", `{"providers": {` + provider + `}}, "server": {"labels": ` + references + `}}`, n, 1},
		{"providers", `{"providers": ` + object(n, `"p%05d": {}`) + `, "agents": {"default": {"provider": "p00000"}}}`, 2 * n, 0},
		{"agents", `{"providers": {` + provider + `}}, "agents": ` + strings.Replace(object(n, `"a%05d": {"provider": "none"}`), "{", `{"default": {}, `, 1) + `}`, n, 0},
		{"layers", `{"providers": {` + provider + `}}, "agents": ` + strings.Replace(object(n, `"a%05d": 1`), "{", `{"default": {}, `, 1) + `}`, n, 0},
		{"codes", `{"providers": {` + provider + `, "retry_on_status": ` + object(n, `"x%05d": [1]`) + `}}}`, n, 0},
		{"plugins", `{"providers": {` + provider + `}}, "plugins": ["none"` + strings.Repeat(`, "none"`, n-1) + `]}`, n, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			problems := check(t, tt.text)
			var listed, counted [2]int // errors, warnings
			for i, p := range problems {
				kind := 0
				if p.Warning {
					kind = 1
				}
				listed[kind]++
				counted[kind] += p.Count()
				if rest := p.Count() > 1; rest != strings.Contains(p.Message, " more ") || rest && i < len(problems)-2 {
					t.Errorf("problem %d of %d counts %d: %s", i, len(problems), p.Count(), p)
				}
			}
			if want := [2]int{tt.errors, tt.warnings}; counted != want {
				t.Errorf("%v errors and warnings are counted, want %v; first %v", counted, want, problems[:min(len(problems), 3)])
			}
			if most := loquat.MaxFieldErrors + 1; listed[0] > most || listed[1] > most {
				t.Errorf("%v errors and warnings are listed, want at most %d each", listed, most)
			}
			if config.Failed(problems) != (tt.errors > 0) {
				t.Errorf("failed: %v", config.Failed(problems))
			}
			if again := check(t, tt.text); !reflect.DeepEqual(again, problems) {
				t.Error("a second check lists other problems")
			}
		})
	}
}

// An object of a hundred thousand unknown keys has a list of the same length.
func TestProblemsOfAnObjectAreBounded(t *testing.T) {
	o, problem := config.ParseObject([]byte(object(100_000, `"k%d": 1`)))
	if problem != nil {
		t.Fatal(problem)
	}
	problems := config.CheckObject(o, config.Schema{{Key: "name", Kind: config.String, Required: true}})
	last := problems[len(problems)-1]
	if len(problems) != loquat.MaxFieldErrors+1 || last.Count() != 99_901 || !strings.Contains(last.String(), "99901 more errors") {
		t.Errorf("%d problems, the last %v", len(problems), last)
	}
}
