package loquat

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestLabels(t *testing.T) {
	many := make([]string, MaxTags+1)
	for i := range many {
		many[i] = strconv.Quote(strconv.Itoa(i))
	}
	long := strings.Repeat("ä", MaxTag)
	for _, c := range []struct {
		metadata string
		want     Labels
		faults   []string
	}{
		{`{}`, Labels{}, nil},
		{`{"pinned":true,"archived":true,"tags":["b","a","b"]}`, Labels{true, true, []string{"a", "b"}}, nil},
		{`{"pinned":false,"archived":null,"tags":null}`, Labels{}, nil},
		{`{"tags":[]}`, Labels{}, nil},
		{`{"tags":[` + strings.Join(many[1:], ",") + `]}`, LabelsOf(Object{MetaTags: []byte(`[` + strings.Join(many[1:], ",") + `]`)}), nil},
		{`{"tags":["` + long + `"]}`, Labels{Tags: []string{long}}, nil},
		{`{"pinned":"yes","archived":1,"tags":"a"}`, Labels{}, []string{"m.archived has to be true or false", "m.pinned has to be true or false", "m.tags has to be a list of texts"}},
		{`{"tags":["a",1]}`, Labels{}, []string{"m.tags has to be a list of texts"}},
		{`{"tags":["a",null]}`, Labels{}, []string{"m.tags has an entry 1 of 0 characters; a tag has 1 to 64"}},
		{`{"tags":["` + long + `b"]}`, Labels{}, []string{"m.tags has an entry 0 of 65 characters; a tag has 1 to 64"}},
		{`{"tags":[` + strings.Join(many, ",") + `]}`, Labels{}, []string{"m.tags has 33 entries; a session has at most 32 tags"}},
	} {
		var metadata Object
		if err := json.Unmarshal([]byte(c.metadata), &metadata); err != nil {
			t.Fatal(err)
		}
		if got := LabelsOf(metadata); got.Pinned != c.want.Pinned || got.Archived != c.want.Archived || !slices.Equal(got.Tags, c.want.Tags) {
			t.Errorf("%s has the labels %+v, want %+v", c.metadata, got, c.want)
		}
		var f FieldErrors
		CheckLabels(&f, "m", metadata)
		_ = f.Err() // sorts
		var faults []string
		for _, fault := range f.List() {
			faults = append(faults, fault.Location+" "+fault.Message)
		}
		if !slices.Equal(faults, c.faults) {
			t.Errorf("%s has the faults %q, want %q", c.metadata, faults, c.faults)
		}
	}
}
