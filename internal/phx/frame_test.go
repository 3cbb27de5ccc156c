package phx

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestDecode(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	for _, c := range []struct {
		name string
		v    Version
		in   string
		want *Frame // nil: an error
	}{
		{"array", V2, `["1","2","t","e",{"a":1}]`, &Frame{"1", "2", "t", "e", json.RawMessage(`{"a":1}`)}},
		{"nulls", V2, `[null,null,"t","e",{}]`, &Frame{"", "", "t", "e", json.RawMessage(`{}`)}},
		{"any payload", V2, `[null,null,"t","e",null]`, &Frame{"", "", "t", "e", json.RawMessage(`null`)}},
		{"object", V1, `{"topic":"t","event":"e","payload":{"a":1},"ref":"2"}`, &Frame{"", "2", "t", "e", json.RawMessage(`{"a":1}`)}},
		{"object with join_ref", V1, `{"topic":"t","event":"e","payload":[],"ref":null,"join_ref":"1"}`, &Frame{"1", "", "t", "e", json.RawMessage(`[]`)}},
		{"array as object", V1, `["1","2","t","e",{}]`, nil},
		{"object as array", V2, `{"topic":"t","event":"e","payload":{}}`, nil},
		{"four parts", V2, `["1","2","t","e"]`, nil},
		{"six parts", V2, `["1","2","t","e",{},{}]`, nil},
		{"a number as ref", V2, `["1",2,"t","e",{}]`, nil},
		{"no topic", V2, `["1","2","","e",{}]`, nil},
		{"no event", V2, `["1","2","t",null,{}]`, nil},
		{"a long topic", V2, `["1","2","` + long + `","e",{}]`, nil},
		{"a long event", V2, `["1","2","t","` + long + `",{}]`, nil},
		{"a long ref", V2, `["1","` + long + `","t","e",{}]`, nil},
		{"no payload", V1, `{"topic":"t","event":"e","ref":"1"}`, nil},
		{"null", V1, `null`, nil},
		{"nothing", V2, ``, nil},
		{"two values", V2, `["1","2","t","e",{}]["1","2","t","e",{}]`, nil},
	} {
		got, err := c.v.decode([]byte(c.in))
		switch {
		case c.want == nil && err == nil:
			t.Errorf("%s: %s was decoded as %+v", c.name, c.in, got)
		case c.want != nil && (err != nil || !reflect.DeepEqual(got, *c.want)):
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, *c.want)
		}
	}
}

func TestAppend(t *testing.T) {
	f := Frame{"1", "2", `to"pic`, "e", json.RawMessage(`{"a":"é"}`)}
	for v, want := range map[Version]string{
		V2: `["1","2","to\"pic","e",{"a":"é"}]`,
		V1: `{"topic":"to\"pic","event":"e","ref":"2","join_ref":"1","payload":{"a":"é"}}`,
	} {
		if got := string(v.Append(nil, f)); got != want {
			t.Errorf("serializer %d: %s, want %s", v, got, want)
		}
	}
	if got := string(V2.Append(nil, Frame{Topic: "t", Event: "e", Payload: json.RawMessage(`{}`)})); got != `[null,null,"t","e",{}]` {
		t.Errorf("without refs: %s", got)
	}
}

func TestParseVersion(t *testing.T) {
	for vsn, want := range map[string]Version{"": V1, "1.0.0": V1, "2.0.0": V2, "3.0.0": 0, "2": 0} {
		if got, err := parseVersion(vsn); got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %d, %v", vsn, got, err)
		}
	}
}

// A decoded frame does not change when it is encoded and decoded again.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`["1","2","t","phx_join",{"token":"x"}]`, `[null,"1","phoenix","heartbeat",{}]`, `{"topic":"t","event":"e","payload":{},"ref":"1","join_ref":null}`,
		`["\u0000","\ud800","t","e",[1,2,{"a":null}]]`, `[[[[[[`, `["1","2","t","e",1e999]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, v := range []Version{V1, V2} {
			got, err := v.decode(data)
			if err != nil {
				continue
			}
			again, err := v.decode(v.Append(nil, got))
			if err != nil || !reflect.DeepEqual(again, got) {
				t.Errorf("serializer %d: %q is decoded as %+v, and after encoding as %+v, %v", v, data, got, again, err)
			}
		}
	})
}
