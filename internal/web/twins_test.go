package web

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"loquat/internal/ui"
)

// twinCase is one input for the server and the client, with the server's results.
type twinCase struct {
	Context   map[string]any `json:"context"`
	Root      ui.Root        `json:"root"`
	Condition any            `json:"condition"`
	Path      string         `json:"path"`
	Visible   bool           `json:"visible"`
	Valid     bool           `json:"valid"`
	Found     bool           `json:"found"`
	Text      string         `json:"text"`
}

const runTwins = `
import { readFileSync } from "node:fs";
let faults = 0;
for (const c of JSON.parse(readFileSync(0, "utf8"))) {
  const { found, value } = lookup(c.path, c.root, c.context);
  const text = found ? render("<{{data}}>", value) : "";
  const got = { visible: visible(c.condition, c.root, c.context), valid: valid(c.condition), found, text: text.includes(":") ? "" : text };
  for (const name of Object.keys(got)) {
    if (got[name] !== c[name] && ++faults < 10) console.log(name + " is " + JSON.stringify(got[name]) + " of " + JSON.stringify(c));
  }
}
process.exitCode = faults ? 1 : 0;`

// The server and the client of the SDK agree on random conditions, paths and texts.
func TestTwins(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	d := dice{rand.New(rand.NewPCG(seed, 0))}
	cases := make([]twinCase, 5000)
	visible, valid := 0, 0
	for i := range cases {
		c := twinCase{
			Context:   map[string]any{"session": d.value(4), "message": d.value(4), "config": d.value(4)},
			Root:      []ui.Root{ui.RootSession, ui.RootMessage, ui.RootConfig, ui.RootMetadata}[d.IntN(4)],
			Condition: d.condition(4),
			Path:      d.path(),
		}
		in := ui.Context{Session: c.Context["session"], Message: c.Context["message"], Config: c.Context["config"]}
		raw, err := json.Marshal(c.Condition)
		if err != nil {
			t.Fatal(err)
		}
		c.Visible, err = ui.Visible(raw, c.Root, in)
		c.Valid = err == nil
		var data any
		if data, c.Found = ui.Lookup(c.Path, c.Root, in); c.Found {
			c.Text = ui.Render("<{{data}}>", data)
		}
		if strings.Contains(c.Text, ":") { // the order of an object's keys is undefined
			c.Text = ""
		}
		if c.Visible {
			visible++
		}
		if c.Valid {
			valid++
		}
		cases[i] = c
	}
	if visible < 500 || valid-visible < 500 || len(cases)-valid < 500 {
		t.Fatalf("of %d conditions %d are valid and %d hold: too few of one kind to compare the two sides", len(cases), valid, visible)
	}
	input, err := json.Marshal(cases)
	if err != nil {
		t.Fatal(err)
	}
	runModule(t, runTwins, input)
}

// dice makes random JSON from few keys and values, so that conditions often match. Its
// numbers are float64, as after decoding.
type dice struct{ *rand.Rand }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

func (d dice) value(depth int) any {
	if depth == 0 || d.IntN(4) == 0 {
		return pick[any](d, nil, true, false, 0.0, 1.0, -1.0, 1.5, 1e21, 1e-7, 100000.0, "", "a", "1", "<é>", []any{}, map[string]any{})
	}
	if d.IntN(3) == 0 {
		list := make([]any, d.IntN(3))
		for i := range list {
			list[i] = d.value(depth - 1)
		}
		return list
	}
	object := map[string]any{}
	for range d.IntN(5) {
		object[d.key()] = d.value(depth - 1)
	}
	return object
}

func (d dice) key() string {
	return pick(d, "a", "b", "a", "b", "0", "1", "00", "metadata", "length", "constructor", "__proto__")
}

func (d dice) path() string {
	keys := []string{pick(d, "", "", "", "$.", "$session.", "$message.", "$config.", "$user.", ".")}
	for i := range 1 + d.IntN(3) {
		if i > 0 {
			keys = append(keys, ".")
		}
		keys = append(keys, d.key())
	}
	return strings.Join(keys, "")
}

func (d dice) condition(depth int) any {
	if d.IntN(25) == 0 {
		return pick[any](d, nil, true, "a", []any{}, 1)
	}
	c := map[string]any{}
	if d.IntN(4) > 0 {
		c["path"] = d.path()
	}
	for range d.IntN(3) {
		switch operator := pick(d, "all", "any", "not", "eq", "exists", "empty", "path", "like"); {
		case depth == 0 || operator == "path":
		case operator == "not":
			c[operator] = d.condition(depth - 1)
		case operator == "all" || operator == "any":
			group := make([]any, d.IntN(3))
			for i := range group {
				group[i] = d.condition(depth - 1)
			}
			c[operator] = group
		case operator == "eq":
			c[operator] = d.value(1)
		case operator != "like" || d.IntN(5) == 0:
			c[operator] = d.IntN(2) == 0
		}
	}
	return c
}
