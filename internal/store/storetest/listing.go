package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/store"
)

// page lists sessions by id and returns the next place.
func page(t *testing.T, s *store.Store, f store.SessionFilter, after store.Place, limit int) (ids []string, next store.Place) {
	t.Helper()
	view(t, s, func(r *store.Reader) error {
		heads, place, err := r.Heads(f, after, limit)
		for _, h := range heads {
			ids = append(ids, h.SessionID)
		}
		next = place
		return err
	})
	if len(ids) > limit {
		t.Fatalf("a page of %d has %d sessions", limit, len(ids))
	}
	return ids, next
}

// labelled returns metadata, for example of "pinned archived tag:a tag:b".
func labelled(words string) loquat.Object {
	out := loquat.Object{}.Set("title", words)
	var tags []string
	for word := range strings.FieldsSeq(words) {
		if tag, ok := strings.CutPrefix(word, "tag:"); ok {
			tags = append(tags, tag)
		} else {
			out.Set(word, true)
		}
	}
	if tags != nil {
		out.Set(loquat.MetaTags, tags)
	}
	return out
}

// userOf returns the user to whom a session of these tests belongs.
func userOf(id string) string {
	return []string{"", "ann", "bob"}[int(id[len(id)-1])%3] // a: ann, b: bob, c: nobody, and so on
}

// describe creates or describes a session.
func describe(t *testing.T, s *store.Store, id, agent string, metadata loquat.Object) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head(id)
		if err != nil {
			if h, err = tx.CreateSession(id, agent, metadata); err == nil {
				err = tx.SetUser(&h, userOf(id))
			}
		} else {
			tx.Describe(&h, agent, metadata)
		}
		if err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

// touch makes a session the newest.
func touch(t *testing.T, s *store.Store, id string) {
	t.Helper()
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head(id)
		if err != nil {
			return err
		}
		return tx.Checkpoint(&h, nil, false)
	})
}

func lists(t *testing.T, open Open) {
	s := start(t, open)
	yes, no := true, false
	for _, c := range []struct{ id, agent, labels string }{
		{"a", "default", ""}, {"b", "default", "pinned tag:x"}, {"c", "other", "archived tag:x tag:y"}, {"d", "other", "tag:y tag:x"},
		{"e", "default", "pinned archived"}, {"f", "default", ""},
	} {
		describe(t, s, c.id, c.agent, labelled(c.labels))
	}
	touch(t, s, "a")
	for _, c := range []struct {
		name   string
		filter store.SessionFilter
		want   string
	}{
		{"all", store.SessionFilter{}, "e b a f d c"},
		{"not archived", store.SessionFilter{Archived: &no}, "b a f d"},
		{"archived", store.SessionFilter{Archived: &yes}, "e c"},
		{"pinned", store.SessionFilter{Pinned: &yes}, "e b"},
		{"not pinned", store.SessionFilter{Pinned: &no, Archived: &no}, "a f d"},
		{"a tag", store.SessionFilter{Tags: []string{"x"}}, "b d c"},
		{"two tags", store.SessionFilter{Tags: []string{"x", "y"}}, "d c"},
		{"a tag twice", store.SessionFilter{Tags: []string{"x", "x"}}, "b d c"},
		{"a tag that no session has", store.SessionFilter{Tags: []string{"x", "z"}}, ""},
		{"an agent", store.SessionFilter{AgentID: "other"}, "d c"},
		{"the default agent", store.SessionFilter{AgentID: "default", Archived: &no}, "b a f"},
		{"an agent and a tag", store.SessionFilter{AgentID: "other", Tags: []string{"y"}, Archived: &yes}, "c"},
		{"a user", store.SessionFilter{User: "ann"}, "a d"},
		{"a user and a tag", store.SessionFilter{User: "bob", Tags: []string{"x"}}, "b"},
		{"a user and an agent", store.SessionFilter{User: "bob", AgentID: "default", Pinned: &yes}, "e b"},
		{"a user that has no session", store.SessionFilter{User: "carl"}, ""},
		{"an agent that no session has", store.SessionFilter{AgentID: "nobody"}, ""},
	} {
		for _, limit := range []int{1, 2, 100} {
			var got []string
			for after, rounds := (store.Place{}), 0; ; rounds++ {
				ids, next := page(t, s, c.filter, after, limit)
				got = append(got, ids...)
				if after = next; next == (store.Place{}) || rounds > 10 {
					break
				}
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%s, %d to a page: %v, want %s", c.name, limit, got, c.want)
			}
		}
	}
}

// modelSession is a session as listModel knows it.
type modelSession struct {
	agent    string
	metadata loquat.Object
	changed  int // number of its newest change
}

// listModel changes sessions at random and knows which lists they make.
type listModel struct {
	t        *testing.T
	store    *store.Store
	r        *rand.Rand
	sessions map[string]modelSession
	created  int
	changes  int
}

// change creates, describes, touches or deletes a session.
func (m *listModel) change() {
	m.changes++
	ids := slices.Sorted(maps.Keys(m.sessions))
	op := m.r.IntN(10)
	if len(ids) < 5 || op < 3 {
		m.created++
		ids, op = []string{fmt.Sprintf("s%03d", m.created)}, 3
	}
	id := ids[m.r.IntN(len(ids))]
	switch {
	case op < 6:
		c := modelSession{[]string{"default", "one", "two"}[m.r.IntN(3)], labelled(randomLabels(m.r)), m.changes}
		describe(m.t, m.store, id, c.agent, c.metadata)
		m.sessions[id] = c
	case op < 9:
		touch(m.t, m.store, id)
		c := m.sessions[id]
		c.changed = m.changes
		m.sessions[id] = c
	default:
		update(m.t, m.store, func(tx *store.Tx) error {
			h, err := tx.Head(id)
			if err != nil {
				return err
			}
			return tx.DeleteSession(&h)
		})
		delete(m.sessions, id)
	}
}

// list returns the ids that a list shows.
func (m *listModel) list(f store.SessionFilter) []string {
	labels := func(id string) loquat.Labels { return loquat.LabelsOf(m.sessions[id].metadata) }
	ids := slices.DeleteFunc(slices.Collect(maps.Keys(m.sessions)), func(id string) bool {
		l := labels(id)
		return f.User != "" && f.User != userOf(id) || f.AgentID != "" && f.AgentID != m.sessions[id].agent || f.Pinned != nil && *f.Pinned != l.Pinned || f.Archived != nil && *f.Archived != l.Archived ||
			slices.ContainsFunc(f.Tags, func(tag string) bool { return !slices.Contains(l.Tags, tag) })
	})
	slices.SortFunc(ids, func(a, b string) int {
		if pa, pb := labels(a).Pinned, labels(b).Pinned; pa != pb {
			if pa {
				return -1
			}
			return 1
		}
		return m.sessions[b].changed - m.sessions[a].changed
	})
	return ids
}

// changingLists reads lists page by page while sessions change. The pages together have to be
// the list as it was when the first page was read, without the sessions deleted since.
func changingLists(t *testing.T, open Open) {
	s := start(t, open)
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	m := &listModel{t: t, store: s, r: r, sessions: map[string]modelSession{}}
	for range 40 {
		for range r.IntN(10) {
			m.change()
		}
		f := randomFilter(r)
		want := m.list(f)
		var got []string
		for after, rounds := (store.Place{}), 0; rounds < 1000; rounds++ {
			ids, next := page(t, s, f, after, 1+r.IntN(5))
			got = append(got, ids...)
			if after = next; next == (store.Place{}) {
				break
			}
			for range r.IntN(4) {
				m.change()
			}
		}
		gone := func(id string) bool { _, ok := m.sessions[id]; return !ok }
		if !slices.Equal(slices.DeleteFunc(slices.Clone(got), gone), slices.DeleteFunc(want, gone)) {
			t.Fatalf("the pages of %+v have %v, want %v", f, got, want)
		}
	}
}

func randomLabels(r *rand.Rand) string {
	var out []string
	for _, word := range []string{"pinned", "archived", "tag:a", "tag:b", "tag:c"} {
		if r.IntN(3) == 0 {
			out = append(out, word)
		}
	}
	return strings.Join(out, " ")
}

func randomFilter(r *rand.Rand) (f store.SessionFilter) {
	either := func() *bool {
		if r.IntN(2) == 0 {
			return nil
		}
		v := r.IntN(2) == 0
		return &v
	}
	f.Pinned, f.Archived = either(), either()
	f.AgentID = []string{"", "", "default", "one"}[r.IntN(4)]
	f.User = []string{"", "", "ann", "bob"}[r.IntN(4)]
	for _, tag := range []string{"a", "b"} {
		if r.IntN(3) == 0 {
			f.Tags = append(f.Tags, tag)
		}
	}
	return f
}

// manyChanges reads a list after more of its sessions have changed than a page holds. They keep
// their places, behind sessions that have not changed.
func manyChanges(t *testing.T, open Open) {
	s := start(t, open)
	for _, labels := range []string{"", "pinned"} {
		for i := range 6 {
			describe(t, s, fmt.Sprint(i, labels), loquat.DefaultAgent, labelled(labels))
		}
	}
	got, after := page(t, s, store.SessionFilter{}, store.Place{}, 1)
	for i := range 3 {
		touch(t, s, fmt.Sprint(i, "pinned"))
		touch(t, s, fmt.Sprint(i))
	}
	for rounds := 0; after != (store.Place{}) && rounds < 20; rounds++ {
		var ids []string
		ids, after = page(t, s, store.SessionFilter{}, after, 1)
		got = append(got, ids...)
	}
	const want = "5pinned 4pinned 3pinned 2pinned 1pinned 0pinned 5 4 3 2 1 0"
	if strings.Join(got, " ") != want {
		t.Errorf("the pages have %v, want %s", got, want)
	}
}

// listOverRetention checks that a session whose checkpoints were removed is not skipped.
func listOverRetention(t *testing.T, open Open) {
	s, err := store.Open(t.Context(), open(t), store.Options{Retention: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, id := range []string{"a", "b", "c", "d"} {
		describe(t, s, id, "default", nil)
	}
	got, next := page(t, s, store.SessionFilter{}, store.Place{}, 1)
	touch(t, s, "a")
	touch(t, s, "c")
	describe(t, s, "new", "default", nil)
	time.Sleep(5 * time.Millisecond)
	if err := s.Cleanup(t.Context()); err != nil {
		t.Fatal(err)
	}
	for next != (store.Place{}) {
		var ids []string
		ids, next = page(t, s, store.SessionFilter{}, next, 1)
		got = append(got, ids...)
	}
	slices.Sort(got)
	if !slices.Equal(slices.Compact(slices.Clone(got)), got) || !slices.Contains(got, "a") || !slices.Contains(got, "c") || len(got) < 4 {
		t.Errorf("listed %v", got)
	}
}
