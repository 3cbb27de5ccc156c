//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/store"
)

// The section sessions: how many sessions the long list has.
var listedSessions int

const (
	fewSessions  = 10
	pageLength   = 10
	pagesEach    = 400 // of each kind
	sessionBatch = 100 // changed in one transaction
)

// benchSessions measures pages of a short and of a long list of sessions, and alternatives in short
// and in long sessions, in both databases.
func benchSessions(w io.Writer) (verdicts []verdict, err error) {
	all, stop, err := databases()
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, d := range all {
		pages, err := d.comparePages(w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		switches, err := d.compareSwitches(w)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.name, err)
		}
		verdicts = append(append(verdicts, pages...), switches...)
	}
	return verdicts, nil
}

// pageKind is a kind of page of a list of sessions.
type pageKind struct {
	name    string
	query   loquat.SessionQuery
	after   func(listed int) int // how many sessions are before the page; nil: none
	changes int                  // sessions that change between the first page and this one
}

// The kinds with changes come last, because each makes the tokens of the others old.
func pageKinds() []pageKind {
	half := func(n int) int { return n / 2 }
	end := func(n int) int { return max(0, n-pageLength) }
	tagged := func(tags ...string) loquat.SessionQuery { return loquat.SessionQuery{Tags: tags} }
	archived := func(which string) loquat.SessionQuery { return loquat.SessionQuery{Archived: which} }
	pinned := loquat.SessionQuery{Pinned: new(bool)}
	*pinned.Pinned = true
	return []pageKind{
		{name: "first"},
		{name: "in the middle", after: half},
		{name: "last", after: end},
		{name: "a common tag, first", query: tagged("common")},
		{name: "a common tag, in the middle", query: tagged("common"), after: half},
		{name: "a common tag, last", query: tagged("common"), after: end},
		{name: "a rare tag, first", query: tagged("rare")},
		{name: "a rare tag, last", query: tagged("rare"), after: end},
		{name: "a rare and a common tag", query: tagged("rare", "common")},
		{name: "a common and a rare tag", query: tagged("common", "rare")},
		{name: "a tag of no session", query: tagged("unused")},
		{name: "pinned", query: pinned},
		{name: "archived, first", query: archived(loquat.ArchivedOnly)},
		{name: "archived, in the middle", query: archived(loquat.ArchivedOnly), after: half},
		{name: "archived or not, first", query: archived("any")},
		{name: "archived or not, in the middle", query: archived("any"), after: half},
		{name: "an agent, first", query: loquat.SessionQuery{AgentID: "helper"}},
		{name: "an agent, in the middle", query: loquat.SessionQuery{AgentID: "helper"}, after: half},
		{name: "the default agent, first", query: loquat.SessionQuery{AgentID: loquat.DefaultAgent}},
		{name: "the default agent, in the middle", query: loquat.SessionQuery{AgentID: loquat.DefaultAgent}, after: half},
		{name: "in the middle, 10 changed since the first", after: half, changes: 10},
		{name: "in the middle, 1,000 changed since the first", after: half, changes: 1000},
	}
}

// listEntry is a session of a list.
type listEntry struct {
	id, agent string
	labels    loquat.Labels
}

func (e listEntry) metadata() loquat.Object {
	out := loquat.Object{}.Set(loquat.MetaTitle, "A title of session "+e.id)
	if len(e.labels.Tags) > 0 {
		out.Set(loquat.MetaTags, e.labels.Tags)
	}
	if e.labels.Pinned {
		out.Set(loquat.MetaPinned, true)
	}
	if e.labels.Archived {
		out.Set(loquat.MetaArchived, true)
	}
	return out
}

// matches reports whether a list that is queried has the session.
func (e listEntry) matches(q loquat.SessionQuery) bool {
	has := func(tag string) bool { return slices.Contains(e.labels.Tags, tag) }
	return (q.AgentID == "" || q.AgentID == e.agent) && (q.Pinned == nil || *q.Pinned == e.labels.Pinned) &&
		(q.Archived == "any" || e.labels.Archived == (q.Archived == loquat.ArchivedOnly)) &&
		!slices.ContainsFunc(q.Tags, func(tag string) bool { return !has(tag) })
}

// listEntries returns the sessions of a list in the order in which they are created. All of a short
// list are on its first page.
func listEntries(n int) (out []listEntry) {
	r := rand.New(rand.NewPCG(1, 2))
	often := func(of, times int) bool { return r.IntN(of) < times }
	rarely := func(times int) bool { return often(n, min(times, n/5)) }
	for i := range n {
		e := listEntry{id: fmt.Sprint("session-", i), agent: loquat.DefaultAgent}
		if often(4, 1) {
			e.agent = "helper"
		}
		if often(2, 1) {
			e.labels.Tags = append(e.labels.Tags, "common")
		}
		if often(3, 1) {
			e.labels.Tags = append(e.labels.Tags, "project "+strconv.Itoa(i%100))
		}
		if rarely(30) {
			e.labels.Tags = append(e.labels.Tags, "rare")
		}
		e.labels.Pinned, e.labels.Archived = rarely(50), often(3, 1) && n > fewSessions
		out = append(out, e)
	}
	return out
}

// sessionList is a store with the sessions of a list.
type sessionList struct {
	store   *store.Store
	service *chat.Service
	entries []listEntry // in the order of their creation
	close   func()
}

// newSessionList fills a new store.
func (d database) newSessionList(n int) (*sessionList, error) {
	driver, remove, err := d.open()
	if err != nil {
		return nil, err
	}
	l := &sessionList{entries: listEntries(n)}
	if l.store, l.close, err = openOn(driver, remove); err != nil {
		return nil, err
	}
	if l.service, err = benchService(l.store); err != nil {
		return nil, err
	}
	for batch := range slices.Chunk(l.entries, sessionBatch) {
		err := l.store.Update(context.Background(), func(tx *store.Tx) error {
			for _, e := range batch {
				if _, err := addSession(tx, e.id, e.agent, e.metadata()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if d.settle != "" {
		err = driver.Write(context.Background(), func(q store.SQL) error { _, err := q.Exec(d.settle); return err })
	}
	return l, err
}

// listed returns the ids that a list has, in its order.
func (l *sessionList) listed(q loquat.SessionQuery) (ids []string) {
	for _, pinned := range []bool{true, false} {
		for _, e := range slices.Backward(l.entries) {
			if e.labels.Pinned == pinned && e.matches(q) {
				ids = append(ids, e.id)
			}
		}
	}
	return ids
}

// change appends a message to some of the sessions, which then come first in the list.
func (l *sessionList) change(n int) error {
	var changed, others []listEntry
	for i, at := range rand.New(rand.NewPCG(3, 4)).Perm(len(l.entries)) {
		if at < n {
			changed = append(changed, l.entries[i])
		} else {
			others = append(others, l.entries[i])
		}
	}
	for batch := range slices.Chunk(changed, sessionBatch) {
		err := l.store.Update(context.Background(), func(tx *store.Tx) error {
			for _, e := range batch {
				if err := addMessage(tx, e.id); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	l.entries = append(others, changed...)
	return nil
}

// addMessage appends a message in a transaction.
func addMessage(tx *store.Tx, id string) error {
	h, err := tx.Head(id)
	if err != nil {
		return err
	}
	m := loquat.Message{ID: fmt.Sprint(id, "-", h.Count), Role: loquat.RoleUser, Content: benchMessage, CreatedAt: tx.Now}
	if _, err := tx.AppendMessage(&h, m); err != nil {
		return err
	}
	return tx.Checkpoint(&h, nil, false)
}

// page is a page of a list and the ids that it must have.
type page struct {
	query loquat.SessionQuery
	ids   []string
}

// find reads the list up to a page and then makes the changes.
func (l *sessionList) find(k pageKind) (page, error) {
	p := page{query: k.query, ids: l.listed(k.query)}
	before := 0
	if k.after != nil {
		before = k.after(len(p.ids))
	}
	for at := 0; at < before; at += p.query.Limit {
		p.query.Limit = min(1000, before-at)
		got, err := l.service.Sessions(context.Background(), p.query)
		if err != nil {
			return p, err
		}
		if err := sameSessions(got, p.ids[at:at+p.query.Limit]); err != nil {
			return p, err
		}
		p.query.PageToken = got.NextPageToken
	}
	p.query.Limit, p.ids = pageLength, p.ids[before:min(before+pageLength, len(p.ids))]
	return p, l.change(k.changes)
}

func sameSessions(got loquat.SessionList, want []string) error {
	same := slices.EqualFunc(got.Sessions, want, func(s loquat.SessionSummary, id string) bool { return s.SessionID == id })
	if !same {
		return fmt.Errorf("a page has %d sessions, and not just the %d that it must have, in their order", len(got.Sessions), len(want))
	}
	return nil
}

// read reads a page and returns how long that took.
func (l *sessionList) read(p page) (time.Duration, error) {
	start := time.Now()
	got, err := l.service.Sessions(context.Background(), p.query)
	took := time.Since(start)
	if err != nil {
		return 0, err
	}
	return took, sameSessions(got, p.ids)
}

// comparePages compares pages of ten sessions of a long list with the only page of a list of ten.
func (d database) comparePages(w io.Writer) (verdicts []verdict, err error) {
	few, err := d.newSessionList(fewSessions)
	if err != nil {
		return nil, err
	}
	defer few.close()
	many, err := d.newSessionList(listedSessions)
	if err != nil {
		return nil, err
	}
	defer many.close()
	only, err := few.find(pageKind{})
	if err != nil {
		return nil, err
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "page of a list in %s\tsessions in it\tthe only page of %d\tof %d\tratio\t\n", d.name, fewSessions, listedSessions)
	for _, k := range pageKinds() {
		p, err := many.find(k)
		if err != nil {
			return nil, fmt.Errorf("page %q: %w", k.name, err)
		}
		a, b, err := interleave(pagesEach, func() (time.Duration, error) { return few.read(only) }, func() (time.Duration, error) { return many.read(p) })
		if err != nil {
			return nil, fmt.Errorf("page %q: %w", k.name, err)
		}
		ratio := float64(b) / float64(a)
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\t%.2f\t\n", k.name, len(p.ids), shortTime(a), shortTime(b), ratio)
		verdicts = append(verdicts, verdict{fmt.Sprintf("%s: a page of a list of %d sessions (%s) at most %.1f times the only page of %d", d.name, listedSessions, k.name, maxFullRatio, fewSessions),
			ratio <= maxFullRatio, fmt.Sprintf("%.2f", ratio)})
	}
	return verdicts, table.Flush()
}

func shortTime(d time.Duration) time.Duration { return d.Round(time.Microsecond) }
