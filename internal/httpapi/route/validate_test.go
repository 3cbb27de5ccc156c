package route

import (
	"encoding/json"
	"fmt"
	"loquat"
	"slices"
	"testing"
)

type inner struct {
	Role  string  `json:"role" enum:"user,system"`
	Count *int    `json:"count,omitempty" minimum:"1" maximum:"9"`
	Share float64 `json:"share,omitempty" maximum:"1"`
}

type outer struct {
	Name  string            `json:"name" minLength:"1" maxLength:"3" pattern:"^[a-zé]*$"`
	Yes   bool              `json:"yes,omitempty"`
	Inner []inner           `json:"inner,omitempty" maxItems:"2"`
	Texts map[string]string `json:"texts,omitempty"`
	Free  map[string]any    `json:"free,omitempty"`
}

// Each rule of a schema is checked, with one clear message at the place of the fault.
func TestValidate(t *testing.T) {
	schemas := NewSchemas()
	for _, c := range []struct {
		body string
		want []string
	}{
		{`{"name":"aéb"}`, nil},
		{`{"name":"a","yes":null,"inner":null,"texts":null,"free":null}`, nil},
		{`{"name":"a","free":{"a.b":[1,{}],"c":null}}`, nil},
		{`{"name":"a","inner":[{"role":"user","count":null},{"role":"system","count":9,"share":0.5}]}`, nil},
		{`null`, []string{"body has to be an object, not null"}},
		{`[]`, []string{"body has to be an object, not a list"}},
		{`{}`, []string{"body.name is missing"}},
		{`{"name":null}`, []string{"body.name has to be a string, not null"}},
		{`{"name":""}`, []string{"body.name needs a length of at least 1"}},
		{`{"name":"abcd"}`, []string{"body.name needs a length of at most 3"}},
		{`{"name":"A"}`, []string{`body.name has to match ^[a-zé]*$, not "A"`}},
		{`{"name":["a"]}`, []string{"body.name has to be a string, not a list"}},
		{`{"Name":"a"}`, []string{"body.Name is not a known key here; did you mean name?", "body.name is missing"}},
		{`{"name":"a","yes":"true","inner":{}}`, []string{"body.inner has to be a list, not an object", "body.yes has to be true or false, not a string"}},
		{`{"name":"a","inner":[{"role":"robot","count":0,"share":2},7]}`, []string{
			"body.inner[0].count is at least 1, not 0", `body.inner[0].role has to be one of user, system, not "robot"`,
			"body.inner[0].share is at most 1, not 2", "body.inner[1] has to be an object, not a number"}},
		{`{"name":"a","inner":[{"role":"user","count":1.5}]}`, []string{"body.inner[0].count has to be an integer, not a fraction"}},
		{`{"name":"a","inner":[{"role":"user"},{"role":"user"},{"role":"user"}]}`, []string{"body.inner needs at most 2 items"}},
		{`{"name":"a","texts":{"a.b[0]":1,"c":"d"},"x":1}`, []string{"body.texts.a.b[0] has to be a string, not a number",
			"body.x is not a known key here; the keys are free, inner, name, texts, yes"}},
	} {
		var value any
		if err := json.Unmarshal([]byte(c.body), &value); err != nil {
			t.Fatal(err)
		}
		var f loquat.FieldErrors
		schemas.Validate(&f, outer{}, "body", value)
		_ = f.Err() // sorts
		var got []string
		for _, e := range f.List() {
			got = append(got, fmt.Sprint(e.Location, " ", e.Message))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.body, got, c.want)
		}
	}
}
