package loquat_test

import (
	"slices"
	"strconv"
	"testing"

	"loquat"
)

// A report counts all sessions. It lists those that failed or have notes first, and others while there
// is room for them.
func TestImportReport(t *testing.T) {
	kinds := map[string]loquat.ImportedSession{
		"stored":  {Status: loquat.ImportStored},
		"noted":   {Status: loquat.ImportStored, Notes: []string{"a note"}},
		"skipped": {Status: loquat.ImportSkipped},
		"failed":  {Status: loquat.ImportFailed, Error: "an error"},
	}
	type some struct {
		count int
		kind  string
	}
	type places struct{ from, to int }
	for name, c := range map[string]struct {
		add                       []some
		imported, skipped, failed int
		want                      []places // the sessions of the list, by the order in which they were added
	}{
		"one of each":               {[]some{{2, "stored"}, {1, "failed"}, {1, "noted"}, {1, "skipped"}}, 3, 1, 1, []places{{2, 3}, {0, 1}, {4, 4}}},
		"faults stay in order":      {[]some{{1, "noted"}, {1, "failed"}, {1, "stored"}, {1, "noted"}}, 3, 0, 1, []places{{0, 1}, {3, 3}, {2, 2}}},
		"more than are listed":      {[]some{{1001, "stored"}}, 1001, 0, 0, []places{{0, 999}}},
		"a fault in a full list":    {[]some{{1000, "stored"}, {1, "noted"}}, 1001, 0, 0, []places{{1000, 1000}, {0, 998}}},
		"a fault fills the list":    {[]some{{999, "stored"}, {1, "failed"}, {1, "stored"}}, 1000, 0, 1, []places{{999, 999}, {0, 998}}},
		"more faults than listed":   {[]some{{1001, "failed"}}, 0, 0, 1001, []places{{0, 999}}},
		"a list that faults fill":   {[]some{{1000, "failed"}, {1, "skipped"}}, 0, 1, 1000, []places{{0, 999}}},
		"faults replace all others": {[]some{{1000, "stored"}, {1000, "failed"}}, 1000, 0, 1000, []places{{1000, 1999}}},
	} {
		var r loquat.ImportReport
		added := 0
		for _, s := range c.add {
			for range s.count {
				session := kinds[s.kind]
				session.Place = strconv.Itoa(added)
				r.Add(session)
				added++
			}
		}
		var want, got []string
		for _, p := range c.want {
			for i := p.from; i <= p.to; i++ {
				want = append(want, strconv.Itoa(i))
			}
		}
		for _, s := range r.Sessions {
			got = append(got, s.Place)
		}
		if r.Imported != c.imported || r.Skipped != c.skipped || r.Failed != c.failed || !slices.Equal(got, want) {
			t.Errorf("%s: %d imported, %d skipped, %d failed, %d listed: %.100q …", name, r.Imported, r.Skipped, r.Failed, len(got), got)
		}
	}
}
