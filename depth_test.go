package loquat_test

import (
	"errors"
	"strings"
	"testing"

	"loquat"
)

func TestCheckDepth(t *testing.T) {
	lists := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	objects := func(n int) string { return strings.Repeat(`{"a":`, n) + "1" + strings.Repeat("}", n) }
	for _, c := range []struct{ name, json, place string }{
		{"nothing", ``, ""},
		{"at the limit", lists(128), ""},
		{"one level too deep", lists(129), "[0][0][0][0][0][0]…"},
		{"objects", objects(129), "a.a.a.a.a.a…"},
		{"objects at the limit", objects(128), ""},
		{"far too deep", lists(1 << 20), "[0][0][0][0][0][0]…"},
		{"never closed", strings.Repeat("[", 129), "[0][0][0][0][0][0]…"},
		{"many objects next to each other", "[" + strings.Repeat("{},", 1000) + "{}]", ""},
		{"brackets in a string", `{"a":"` + strings.Repeat(`[{\"`, 500) + `"}`, ""},
		{"a string that ends in backslashes", `["\\",` + lists(127) + `]`, ""},
		{"after a string that ends in backslashes", `["\\",` + lists(128) + `]`, "[1][0][0][0][0][0]…"},
		{"several items at a depth without a place", `[[[[[[[` + strings.Repeat("[1,2],", 200) + `3]]]]]]]`, ""},
		{"several values", strings.Repeat("[],", 200), ""},
		{"a string that never ends", strings.Repeat("[", 128) + `"` + strings.Repeat("[", 9) + `\`, ""},
		{"a string that ends with the text", strings.Repeat("[", 128) + `"` + strings.Repeat("[", 9), ""},
		{"in a chunk", `{"id":"x","choices":[{"index":0,"delta":{"content":"[","weird":` + lists(200) + `}}]}`, "choices[0].delta.weird[0][0]…"},
		{"in the third item of a list", `{"data":[{},{"a":[1,2]},{"b":{"c":` + lists(200) + `}}]}`, "data[2].b.c[0][0]…"},
		{"a long name", `{"` + strings.Repeat("n", 100) + `":` + lists(200) + `}`, strings.Repeat("n", 39) + "…[0][0][0][0][0]…"},
		{"a name that is not UTF-8", "{\"\xff\":" + lists(200) + `}`, "\ufffd[0][0][0][0][0]…"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := loquat.CheckDepth([]byte(c.json))
			e, _ := errors.AsType[*loquat.DepthError](err)
			if c.place == "" && err != nil || c.place != "" && (e == nil || e.Place != c.place) {
				t.Errorf("%v, want the place %q", err, c.place)
			}
		})
	}
	o := loquat.Object{"fine": []byte(lists(128)), "deep": []byte(lists(129))}
	if err := o.CheckDepth(); err == nil || !strings.HasSuffix(err.Error(), " at deep[0][0][0][0][0][0]…") {
		t.Error(err)
	}
	o["deep"] = []byte(objects(129))
	if err := o.CheckDepth(); err == nil || !strings.HasSuffix(err.Error(), " at deep.a.a.a.a.a.a…") {
		t.Error(err)
	}
	delete(o, "deep")
	if err := o.CheckDepth(); err != nil {
		t.Error(err)
	}
}
