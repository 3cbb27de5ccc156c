package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"loquat"
)

// Every route that takes attachments refuses the same ones, with the full path of each
// fault, and stores nothing.
func TestFaultsOfAttachments(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	routes := []struct{ path, body, prefix string }{
		{"/sessions/s/messages", `{"role":"user","content":"x",%s}`, "body"},
		{"/sessions/s/send", `{"content":"x",%s}`, "body"},
		{"/sessions", `{"messages":[{"role":"system","content":"x"},{"role":"user","content":"x",%s}]}`, "body.messages[1]"},
	}
	places := []struct{ member, location string }{
		{`"attachments":%s`, ".attachments"},
		{`"metadata":{"attachments":%s}`, ".metadata.attachments"},
	}
	const good = `{"type":"image","url":"https://a/b.png"}`
	cases := []struct {
		name, list string
		want       []string // locations below the list
	}{
		{"a url that is a number", `[{"url":7}]`, []string{"[0].url", "[0].type"}},
		{"a typed url that is a number", `[{"type":"image","url":7}]`, []string{"[0].url"}},
		{"kinds of wrong types", `[` + good + `,{"type":"image","url":{},"data_url":[],"asset_id":true}]`, []string{"[1].asset_id", "[1].data_url", "[1].url"}},
		{"a second kind of a wrong type and an unknown field", `[{"url":"https://a/b.png","asset_id":5,"bogus":1}]`, []string{"[0].asset_id", "[0].bogus", "[0].type"}},
		{"an unknown field", `[{"type":"image","url":"https://a/b.png","bogus":1}]`, []string{"[0].bogus"}},
		{"an unknown field that is null", `[{"type":"image","url":"https://a/b.png","bogus":null}]`, []string{"[0].bogus"}},
		{"names in capitals", `[{"Type":"image","URL":"https://a/b.png"}]`, []string{"[0].Type", "[0].URL", "[0].type"}},
		{"two kinds", `[{"type":"image","url":"https://a/b.png","asset_id":"a"}]`, []string{"[0]"}},
		{"no kind", `[{"type":"image"}]`, []string{"[0]"}},
		{"only a kind that is null", `[{"type":"image","url":null}]`, []string{"[0]"}},
		{"no type", `[{"url":"https://a/b.png"}]`, []string{"[0].type"}},
		{"a type that is a list", `[{"type":["image"],"url":"https://a/b.png"}]`, []string{"[0].type"}},
		{"another type", `[{"type":"video","url":"https://a/b.mp4"}]`, []string{"[0].type"}},
		{"a number", `[7]`, []string{"[0]"}},
		{"null", `[null]`, []string{"[0]"}},
		{"a list in the list", `[[` + good + `]]`, []string{"[0]"}},
		{"several at once", `[7,` + good + `,{"type":"image","url":"file:///etc/passwd"}]`, []string{"[0]", "[2].url"}},
		{"no list", `{"type":"image","url":"https://a/b.png"}`, []string{""}},
		{"an unknown asset", `[{"type":"image","asset_id":"nope"}]`, []string{"[0].asset_id"}},
	}
	before := r.do("GET", "/events", "").field(t, "latest_event_id")
	for _, rt := range routes {
		for _, place := range places {
			for _, c := range cases {
				body := fmt.Sprintf(rt.body, fmt.Sprintf(place.member, c.list))
				p := r.do("POST", rt.path, body).wantProblem(t, 422, loquat.CodeInvalid)
				var got, want []string
				for _, f := range p.Errors {
					got = append(got, f.Location)
				}
				for _, w := range c.want {
					want = append(want, rt.prefix+place.location+w)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s%s, %s: faults at %q, want %q", rt.path, place.location, c.name, got, want)
				}
			}
		}
	}
	for _, rt := range routes { // which of the two lists would count?
		body := fmt.Sprintf(rt.body, `"attachments":[`+good+`],"metadata":{"attachments":[`+good+`]}`)
		p := r.do("POST", rt.path, body).wantProblem(t, 422, loquat.CodeInvalid)
		if len(p.Errors) != 1 || p.Errors[0].Location != rt.prefix+".metadata.attachments" {
			t.Errorf("%s with two lists: %+v", rt.path, p.Errors)
		}
	}
	if after := r.do("GET", "/events", "").field(t, "latest_event_id"); after != before {
		t.Errorf("what was refused left events: %s, then %s", before, after)
	}
}

// A body full of faults costs no more than a hundred of them to report.
func TestManyFaultsOfAttachments(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	for name, list := range map[string]string{
		"attachments": strings.TrimSuffix(strings.Repeat(`7,`, 20000), ","),
		"fields":      `{"a":1` + manyFields(4000) + `}`,
		"a long name": `{"` + strings.Repeat("n", 50000) + `":1}`,
	} {
		got := r.do("POST", "/sessions/s/messages", `{"role":"user","content":"x","attachments":[`+list+`]}`)
		p := got.wantProblem(t, 422, loquat.CodeInvalid)
		if len(p.Errors) == 0 || len(p.Errors) > loquat.MaxFieldErrors+1 || len(got.body) > 32<<10 {
			t.Errorf("%s: %d faults in %d bytes", name, len(p.Errors), len(got.body))
		}
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"f%d":1`, i)
	}
	return b.String()
}

// A kind that is null or empty counts as absent and is not stored.
func TestAbsentKindsOfAttachments(t *testing.T) {
	r := newRig(t)
	r.do("POST", "/sessions", `{"session_id":"s"}`).want(t, 201)
	for _, body := range []string{
		`{"role":"user","content":"x","attachments":[{"type":"image","url":"https://a/b.png","data_url":null,"asset_id":""}]}`,
		`{"role":"user","content":"x","attachments":[{"type":"image","url":"https://a/b.png"}],"metadata":{"attachments":null}}`,
		`{"role":"user","content":"x","attachments":[],"metadata":{"attachments":[{"type":"image","url":"https://a/b.png"}]}}`,
	} {
		var got struct {
			Message struct {
				Metadata map[string]any `json:"metadata"`
			} `json:"message"`
		}
		answer := r.do("POST", "/sessions/s/messages", body).want(t, 201)
		if err := json.Unmarshal(answer.body, &got); err != nil {
			t.Fatal(err)
		}
		if stored := fmt.Sprint(got.Message.Metadata); stored != "map[attachments:[map[type:image url:https://a/b.png]]]" {
			t.Errorf("%s stored %s", body, stored)
		}
	}
	null := r.do("POST", "/sessions/s/messages", `{"role":"user","content":"x","metadata":{"attachments":null}}`).want(t, 201)
	if strings.Contains(string(null.body), "attachments") {
		t.Errorf("a list that is null was stored: %s", null.body)
	}
}
