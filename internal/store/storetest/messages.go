package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/store"
)

// messagesModel makes random changes and compares every revision with a plain slice.
func messagesModel(t *testing.T, open Open) {
	s := start(t, open)
	session := 0
	rapid.Check(t, func(rt *rapid.T) {
		session++
		id := fmt.Sprint("model-", session)
		create(t, s, id, 0)
		var now []string
		history := map[int64][]string{}
		steps := rapid.IntRange(1, 24).Draw(rt, "steps")
		for step := range steps {
			var rev int64
			update(t, s, func(tx *store.Tx) error {
				h, err := tx.Head(id)
				if err != nil {
					return err
				}
				if now, err = change(rt, tx, &h, now, step); err != nil {
					return err
				}
				rev = h.Rev
				return tx.Checkpoint(&h, nil, false)
			})
			history[rev] = slices.Clone(now)
		}
		view(t, s, func(r *store.Reader) error {
			h, err := r.Head(id)
			if err != nil {
				return err
			}
			if h.Count != len(now) {
				rt.Fatalf("head counts %d messages, there are %d", h.Count, len(now))
			}
			for rev, want := range history {
				from := rapid.IntRange(0, len(want)).Draw(rt, "from")
				limit := rapid.IntRange(-1, len(want)).Draw(rt, "limit")
				got, err := r.Messages(h, rev, from, limit)
				if err != nil {
					return err
				}
				page := want[from:]
				if limit >= 0 {
					page = page[:min(limit, len(page))]
				}
				if !slices.Equal(contents(got), page) {
					rt.Fatalf("revision %d from %d, at most %d: %q, want %q", rev, from, limit, contents(got), page)
				}
				if err := historyIs(r, h, rev, history); err != nil {
					rt.Fatal(err)
				}
				if n, err := r.CountAt(h, rev); err != nil || n != len(want) {
					rt.Fatalf("revision %d: %d messages, %v; want %d", rev, n, err, len(want))
				}
			}
			return nil
		})
	})
}

// historyIs compares a history with the model, at each revision that the history covers.
func historyIs(r *store.Reader, h store.Head, from int64, model map[int64][]string) error {
	history, err := r.History(h, from, false)
	if err != nil {
		return err
	}
	if history.From != from || history.To != h.Rev { // all of it is small
		return fmt.Errorf("the history from %d on goes from %d to %d, not %d", from, history.From, history.To, h.Rev)
	}
	for rev := from; rev <= history.To; rev++ {
		want, ok := model[rev]
		if !ok {
			continue
		}
		if got := historyAt(history, rev); !slices.Equal(got, want) {
			return fmt.Errorf("revision %d in the history from %d on: %q, want %q", rev, from, got, want)
		}
	}
	return nil
}

func historyAt(history store.History, rev int64) []string {
	out := []string{}
	for _, v := range history.Versions {
		if v.At(rev) {
			out = append(out, v.Message.Content)
		}
	}
	return out
}

// longHistories checks that a history ends before it is too large, and not too early.
func longHistories(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 1)
	big := strings.Repeat("x", 600<<10)
	model := map[int64][]string{}
	now := []string{"m0"}
	for i := range 12 {
		changeSession(t, s, "a", func(tx *store.Tx, h *store.Head) (err error) {
			text := fmt.Sprint(i, big)
			if i%3 == 2 {
				now = append([]string{text}, now[1:]...)
				_, err = tx.ModifyMessage(h, 0, "", text)
			} else {
				now = append(slices.Clone(now), text)
				_, err = tx.AppendMessage(h, message(tx, text))
			}
			model[h.Rev] = now
			return err
		})
	}
	view(t, s, func(r *store.Reader) error {
		h, err := r.Head("a")
		if err != nil {
			return err
		}
		reads := 0
		for rev := h.Rev - 11; rev <= h.Rev; reads++ {
			history, err := r.History(h, rev, false)
			if err != nil {
				return err
			}
			if history.To < rev {
				t.Fatalf("the history from %d on goes to %d", rev, history.To)
			}
			for ; rev <= history.To; rev++ {
				if !slices.Equal(historyAt(history, rev), model[rev]) {
					t.Errorf("revision %d in the history from %d on is not what it was", rev, history.From)
				}
			}
		}
		if reads < 3 || reads > 6 {
			t.Errorf("%d histories cover it, of which each takes in some three changes", reads)
		}
		return nil
	})
}

// change makes one random change to a session and its model.
func change(rt *rapid.T, tx *store.Tx, h *store.Head, now []string, step int) ([]string, error) {
	kind := rapid.SampledFrom([]string{"append", "append", "modify", "delete", "delete from"}).Draw(rt, "change")
	if len(now) == 0 {
		kind = "append"
	}
	text := fmt.Sprint("text ", step)
	switch kind {
	case "append":
		_, err := tx.AppendMessage(h, message(tx, text))
		return append(slices.Clone(now), text), err
	case "modify":
		i := rapid.IntRange(0, len(now)-1).Draw(rt, "index")
		m, err := tx.ModifyMessage(h, i, "", text)
		if err == nil && m.Content != text {
			err = fmt.Errorf("modified to %q", m.Content)
		}
		out := slices.Clone(now)
		out[i] = text
		return out, err
	case "delete":
		keep := rapid.SliceOfN(rapid.Bool(), len(now), len(now)).Draw(rt, "keep")
		var indices []int
		var out []string
		for i := range now {
			if keep[i] {
				out = append(out, now[i])
			} else {
				indices = append(indices, i)
			}
		}
		return out, tx.DeleteMessages(h, indices)
	default:
		from := rapid.IntRange(0, len(now)-1).Draw(rt, "from index")
		indices, err := tx.DeleteFrom(h, from)
		if err == nil && len(indices) != len(now)-from {
			err = fmt.Errorf("deleted %d", indices)
		}
		return slices.Clone(now[:from]), err
	}
}

func contents(messages []loquat.Message) []string {
	out := []string{}
	for _, m := range messages {
		out = append(out, m.Content)
	}
	return out
}
