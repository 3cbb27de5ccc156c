//go:build unix

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"loquat"
	"loquat/internal/chat"
	"loquat/internal/store"
)

const (
	switchesEach = 60 // in each round
	listingsEach = 50 // in each round
)

// bytesToFiles returns how many bytes this process has given to the system to write, which also counts
// what stays in memory for a while.
func bytesToFiles(store.Driver) (int64, error) { return ioCount(os.Getpid(), "wchar") }

// bytesToLog returns how many bytes a server has written to its log. Its other files get the same
// changes later.
func bytesToLog(driver store.Driver) (n int64, err error) {
	err = driver.Read(context.Background(), func(q store.SQL) error {
		rows, err := q.Query(`SELECT (pg_current_wal_insert_lsn() - '0/0')::BIGINT`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := rows.Scan(&n); err != nil {
				return err
			}
		}
		return rows.Err()
	})
	return n, err
}

// cost is what changes took and wrote, each. The medians leave out the pages that are written at a
// checkpoint of the database, which comes after many changes of any sessions.
type cost struct{ times, bytes []float64 }

func (c *cost) took() time.Duration { return shortTime(time.Duration(median(c.times))) }

// add measures a change.
func (b *branches) add(c *cost, change func() error) error {
	before, err := b.written(b.driver)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := change(); err != nil {
		return err
	}
	c.times = append(c.times, float64(time.Since(start)))
	after, err := b.written(b.driver)
	c.bytes = append(c.bytes, float64(after-before))
	return err
}

// branch is a fork of a session with two alternatives of its last message.
type branch struct {
	id           string
	alternatives [2]string // by their age; inPlace is the index of the one in place
	inPlace      int
}

// branches are forks of sessions of one length. The switches are spread over them, as each adds
// versions of messages to its session, and a short session is to stay short.
type branches struct {
	database
	driver   store.Driver
	store    *store.Store
	service  *chat.Service
	messages int // of each
	all      []*branch
	next     int // to switch

	forks, keeps, switches cost
}

// lastTexts are the texts of the alternatives.
var lastTexts = [2]string{benchMessage, "Another last message." + benchMessage[len("Another last message."):]}

// make forks a session and keeps its last message as an alternative of another one.
func (b *branches) make(source string) error {
	if err := fillSession(b.store, source, b.messages); err != nil {
		return err
	}
	var fork loquat.Snapshot
	err := b.add(&b.forks, func() (err error) {
		fork, err = b.service.ForkSession(context.Background(), chat.Call{}, source, loquat.Fork{})
		return err
	})
	if err != nil {
		return err
	}
	br := &branch{id: fork.Session.SessionID, inPlace: 1}
	if len(fork.Messages) != b.messages {
		return fmt.Errorf("a fork has %d messages, not %d", len(fork.Messages), b.messages)
	}
	err = b.add(&b.keeps, func() error {
		return b.store.Update(context.Background(), func(tx *store.Tx) error { return replaceLast(tx, br.id) })
	})
	if err != nil {
		return err
	}
	list, err := b.service.Alternatives(context.Background(), br.id, nil)
	if err != nil {
		return err
	}
	if len(list.Alternatives) != 2 {
		return fmt.Errorf("a session has %d alternatives, not 2", len(list.Alternatives))
	}
	for i, a := range list.Alternatives {
		br.alternatives[i] = a.AlternativeID
	}
	b.all = append(b.all, br)
	return b.check(br)
}

// replaceLast does what a send does that keeps the message it replaces.
func replaceLast(tx *store.Tx, id string) error {
	h, err := tx.Head(id)
	if err != nil {
		return err
	}
	indices, err := tx.KeepFrom(&h, h.Count-1)
	if err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.MessagesDeleted, Indices: indices}, &h, nil); err != nil {
		return err
	}
	m := loquat.Message{ID: id + "-other", Role: loquat.RoleUser, Content: lastTexts[1], CreatedAt: tx.Now}
	if _, err := tx.AppendMessage(&h, m); err != nil {
		return err
	}
	if _, err := tx.Publish(loquat.Event{Type: loquat.MessageAppended, Role: m.Role, Content: &m.Content, Message: m.AsDelta()}, &h, nil); err != nil {
		return err
	}
	return tx.Checkpoint(&h, nil, false)
}

// check returns an error unless the alternatives and the last message are right.
func (b *branches) check(br *branch) error {
	list, err := b.service.Alternatives(context.Background(), br.id, nil)
	if err != nil {
		return err
	}
	for i, a := range list.Alternatives {
		if a.AlternativeID != br.alternatives[i] || a.InPlace != (i == br.inPlace) || a.Index != b.messages-1 || a.MessageCount != 1 || a.Preview != loquat.Clip(lastTexts[i], len(a.Preview)) {
			return fmt.Errorf("alternative %d of a session of %d messages is %+v", i, b.messages, a)
		}
	}
	return b.store.View(context.Background(), func(r *store.Reader) error {
		h, err := r.Head(br.id)
		if err != nil {
			return err
		}
		last, err := r.Messages(h, h.Rev, b.messages-1, -1)
		if err == nil && (len(last) != 1 || last[0].Content != lastTexts[br.inPlace]) {
			err = fmt.Errorf("the last message of a session of %d messages is not that of its alternative", b.messages)
		}
		return err
	})
}

// turn returns the branch whose turn it is.
func (b *branches) turn() *branch {
	b.next++
	return b.all[b.next%len(b.all)]
}

// switchSome puts the other alternative in place several times and returns the median time.
func (b *branches) switchSome() (time.Duration, error) {
	var c cost
	for range switchesEach {
		br := b.turn()
		var got chat.Answer[loquat.SwitchResult]
		err := b.add(&c, func() (err error) {
			got, err = b.service.SwitchAlternative(context.Background(), chat.Call{}, br.id, br.alternatives[1-br.inPlace])
			return err
		})
		if err != nil {
			return 0, err
		}
		br.inPlace = 1 - br.inPlace
		if got.Body.Index != b.messages-1 || got.Body.Total != b.messages {
			return 0, fmt.Errorf("a switch in a session of %d messages answers %+v", b.messages, got.Body)
		}
	}
	b.switches.bytes = append(b.switches.bytes, c.bytes...)
	return c.took(), nil
}

// listSome lists the alternatives several times and returns the median time.
func (b *branches) listSome() (time.Duration, error) {
	var c cost
	for range listingsEach {
		br := b.turn()
		err := b.add(&c, func() error {
			_, err := b.service.Alternatives(context.Background(), br.id, nil)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return c.took(), nil
}

// compareSwitches compares switches of alternatives in forks of short and of long sessions.
func (d database) compareSwitches(w io.Writer) ([]verdict, error) {
	driver, remove, err := d.open()
	if err != nil {
		return nil, err
	}
	s, closeStore, err := openOn(driver, remove)
	if err != nil {
		return nil, err
	}
	defer closeStore()
	service, err := benchService(s)
	if err != nil {
		return nil, err
	}
	const longSessions = 3
	var compared [2]*branches
	for i, size := range []struct{ messages, sessions int }{{fewMessages, shortSessions}, {manyMessages, longSessions}} {
		b := &branches{database: d, driver: driver, store: s, service: service, messages: size.messages}
		for n := range size.sessions {
			if err := b.make(fmt.Sprint(size.messages, "-", n)); err != nil {
				return nil, err
			}
		}
		compared[i] = b
	}
	few, many := compared[0], compared[1]
	listFew, listMany, err := interleave(growthRounds, few.listSome, many.listSome)
	if err != nil {
		return nil, err
	}
	switchFew, switchMany, err := interleave(growthRounds, few.switchSome, many.switchSome)
	if err != nil {
		return nil, err
	}
	for _, b := range compared {
		for _, br := range b.all {
			if err := b.check(br); err != nil {
				return nil, err
			}
		}
	}
	return d.reportSwitches(w, few, many, [2]time.Duration{listFew, listMany}, [2]time.Duration{switchFew, switchMany})
}

// reportSwitches writes what forks, alternatives and switches cost in short and in long sessions. Only
// the switches have aims.
func (d database) reportSwitches(w io.Writer, few, many *branches, lists, switches [2]time.Duration) (verdicts []verdict, err error) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "\nin %s\t%d messages\t%d messages\tratio\t\n", d.name, fewMessages, manyMessages)
	for _, c := range []struct {
		what      string
		few, many float64
		bytes     bool
		aim       string // what the aim is about; empty: no aim
	}{
		{"fork, time", median(few.forks.times), median(many.forks.times), false, ""},
		{"fork, bytes", median(few.forks.bytes), median(many.forks.bytes), true, ""},
		{"keep the last message and append another, time", median(few.keeps.times), median(many.keeps.times), false, ""},
		{"keep the last message and append another, bytes", median(few.keeps.bytes), median(many.keeps.bytes), true, ""},
		{"list of alternatives, time", float64(lists[0]), float64(lists[1]), false, ""},
		{"switch, time", float64(switches[0]), float64(switches[1]), false, "takes"},
		{"switch, bytes", median(few.switches.bytes), median(many.switches.bytes), true, "writes"},
	} {
		ratio := c.many / c.few
		show := func(v float64) string {
			if c.bytes {
				return fmt.Sprintf("%.0f", v)
			}
			return shortTime(time.Duration(v)).String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%.2f\t\n", c.what, show(c.few), show(c.many), ratio)
		if c.aim != "" {
			verdicts = append(verdicts, verdict{fmt.Sprintf("%s: a switch of alternatives in %d messages %s at most %.1f times what it does in %d", d.name, manyMessages, c.aim, maxFullRatio, fewMessages),
				ratio <= maxFullRatio, fmt.Sprintf("%.2f", ratio)})
		}
	}
	if err := table.Flush(); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintln(w)
	return verdicts, err
}
