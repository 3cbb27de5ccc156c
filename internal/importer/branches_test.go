package importer_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/archive"
	"loquat/internal/importer"
)

// readOne returns the only session of a file.
func readOne(t rapid.TB, opts importer.Options, text string) archive.Item {
	t.Helper()
	f, err := importer.Open(strings.NewReader(text), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []archive.Item
	for item, err := range f.Sessions() {
		if err == nil {
			err = item.Err
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, item)
	}
	if len(out) != 1 {
		t.Fatalf("%d sessions", len(out))
	}
	return out[0]
}

// forest is a random conversation. A node without text makes no message.
type forest struct {
	parents []int // -1: begins the conversation
	texts   []string
	shown   int
}

func forests(t *rapid.T) (f forest) {
	for i := range rapid.IntRange(1, 14).Draw(t, "nodes") {
		f.parents = append(f.parents, rapid.IntRange(-1, i-1).Draw(t, "parent"))
		f.texts = append(f.texts, rapid.SampledFrom([]string{fmt.Sprint("t", i), fmt.Sprint("t", i), ""}).Draw(t, "text"))
	}
	f.shown = rapid.IntRange(0, len(f.parents)-1).Draw(t, "shown")
	return f
}

// claude returns the conversation as Claude exports it.
func (f forest) claude() string {
	type message map[string]any
	var out []message
	for i, parent := range f.parents {
		id := "00000000-0000-4000-8000-000000000000"
		if parent >= 0 {
			id = fmt.Sprint("n", parent)
		}
		out = append(out, message{"uuid": fmt.Sprint("n", i), "parent_message_uuid": id, "sender": "human", "text": f.texts[i]})
	}
	b, _ := json.Marshal(map[string]any{"uuid": "1", "chat_messages": out, "current_leaf_message_uuid": fmt.Sprint("n", f.shown)})
	return string(b)
}

// branch returns the texts from the beginning of the conversation to a node.
func (f forest) branch(i int) string {
	if i < 0 {
		return ""
	}
	if f.texts[i] == "" {
		return f.branch(f.parents[i])
	}
	return f.branch(f.parents[i]) + f.texts[i] + " "
}

func texts(messages []loquat.Message) string {
	var b strings.Builder
	for _, m := range messages {
		b.WriteString(m.Content + " ")
	}
	return b.String()
}

// branchesOf returns the texts of a session with each of its alternatives, and checks that these are
// a tree: at each place one is in place and others are kept.
func branchesOf(t rapid.TB, s archive.Session) []string {
	t.Helper()
	type place struct{ within, index int }
	inPlace, kept := map[place]int{}, map[place]int{}
	out := []string{texts(s.Messages)}
	whole := make([][]loquat.Message, len(s.Alternatives))
	for i, a := range s.Alternatives {
		holder, first := s.Messages, 0
		if a.Within != loquat.OfSession {
			holder, first = whole[a.Within], s.Alternatives[a.Within].Index+1
		}
		if a.Index < first || a.Index > len(holder) || a.InPlace == (len(a.Messages) > 0) {
			t.Fatalf("alternative %d is at %d, where %d to %d can be: %+v", i, a.Index, first, len(holder), a)
		}
		if a.InPlace {
			inPlace[place{a.Within, a.Index}]++
			continue
		}
		kept[place{a.Within, a.Index}]++
		whole[i] = append(slices.Clone(holder[:a.Index]), a.Messages...)
		out = append(out, texts(whole[i]))
	}
	for at, n := range kept {
		if inPlace[at] != 1 || n == 0 {
			t.Fatalf("at %v %d are in place and %d kept", at, inPlace[at], n)
		}
	}
	if len(inPlace) != len(kept) {
		t.Fatalf("%d places have one in place, and %d have others", len(inPlace), len(kept))
	}
	return out
}

// Every branch of a conversation is in the session: the one that was shown last in place, and the
// others as alternatives. No message is there twice.
func TestBranches(t *testing.T) {
	opts := options(t)
	rapid.Check(t, func(t *rapid.T) {
		f := forests(t)
		item := readOne(t, opts, f.claude())
		if len(item.Notes) > 0 {
			t.Fatalf("notes: %q", item.Notes)
		}
		got := branchesOf(t, item.Session)
		linked := slices.ContainsFunc(f.parents, func(parent int) bool { return parent >= 0 })
		if linked && got[0] != f.branch(f.shown) {
			t.Fatalf("%v: shown is %q, want %q", f, got[0], f.branch(f.shown))
		}
		for i := range f.parents {
			want := f.branch(i)
			if linked && !slices.ContainsFunc(got, func(branch string) bool { return strings.HasPrefix(branch, want) }) {
				t.Fatalf("%v: the branch %q is missing in %q", f, want, got)
			}
		}
		seen := map[string]bool{}
		_ = item.Session.EachMessage(func(_ string, m *loquat.Message) error {
			if seen[m.Content] || m.Content == "" {
				t.Fatalf("%v: %q is there twice, or empty", f, m.Content)
			}
			seen[m.Content] = true
			return nil
		})
	})
}

// Messages with any links, also in circles, are all there, and the branch that was shown last is not
// cut by others.
func TestBranchesWithFaultyLinks(t *testing.T) {
	opts := options(t)
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 9).Draw(t, "nodes")
		var messages []map[string]any
		for i := range n {
			id := rapid.IntRange(0, n-1).Draw(t, "id")
			parent := rapid.IntRange(0, n+1).Draw(t, "parent")
			messages = append(messages, map[string]any{"uuid": fmt.Sprint("n", id), "parent_message_uuid": fmt.Sprint("n", parent), "sender": "human", "text": fmt.Sprint("t", i)})
		}
		b, _ := json.Marshal(map[string]any{"uuid": "1", "chat_messages": messages, "current_leaf_message_uuid": "n0"})
		item := readOne(t, opts, string(b))
		branchesOf(t, item.Session)
		count := 0
		_ = item.Session.EachMessage(func(string, *loquat.Message) error { count++; return nil })
		if count != n {
			t.Fatalf("%s: %d of %d messages are there", b, count, n)
		}
	})
}

// A circle is noted, and the branch that was shown is whole.
func TestBranchInCircle(t *testing.T) {
	item := readOne(t, options(t), `{"uuid": "1", "current_leaf_message_uuid": "d", "chat_messages": [
		{"uuid": "x", "parent_message_uuid": "b", "sender": "human", "text": "x"},
		{"uuid": "a", "parent_message_uuid": "c", "sender": "human", "text": "a"},
		{"uuid": "b", "parent_message_uuid": "a", "sender": "human", "text": "b"},
		{"uuid": "c", "parent_message_uuid": "b", "sender": "human", "text": "c"},
		{"uuid": "d", "parent_message_uuid": "c", "sender": "human", "text": "d"},
		{"uuid": "e", "parent_message_uuid": "gone", "sender": "human", "text": "e"},
		{"uuid": "f", "parent_message_uuid": "f", "sender": "human", "text": "f"}]}`)
	got := branchesOf(t, item.Session)
	if want := []string{"a b c d ", "e ", "f ", "a b x "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if len(item.Notes) != 3 || !strings.HasPrefix(item.Notes[0], "message a follows itself") {
		t.Errorf("notes: %q", item.Notes)
	}
}

// A session has at most so many alternatives; those of the conversation itself come before those
// within others. What goes beyond is noted.
func TestBranchesBeyondTheLimit(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"uuid": "1", "current_leaf_message_uuid": "n0", "chat_messages": [{"uuid": "n0", "sender": "human", "text": "0"}`)
	for i := 1; i <= 600; i++ { // two questions with an answer, and two answers to the second
		fmt.Fprintf(&b, `, {"uuid": "q%d", "parent_message_uuid": "n0", "sender": "human", "text": "q%d"}`, i, i)
		fmt.Fprintf(&b, `, {"uuid": "a%d", "parent_message_uuid": "q%d", "sender": "assistant", "text": "a%d"}`, i, i, i)
		fmt.Fprintf(&b, `, {"uuid": "b%d", "parent_message_uuid": "q%d", "sender": "assistant", "text": "b%d"}`, i, i, i)
	}
	b.WriteString("]}")
	item := readOne(t, options(t), b.String())
	got := branchesOf(t, item.Session)
	if n := len(item.Session.Alternatives); n > loquat.MaxAlternatives || n < loquat.MaxAlternatives-1 {
		t.Errorf("%d alternatives", n)
	}
	if !slices.Contains(got, "0 q600 b600 ") || !slices.Contains(got, "0 q1 a1 ") || slices.Contains(got, "0 q600 a600 ") {
		t.Error("not the right alternatives were kept")
	}
	if want := "401 messages of other branches are left out; a session has at most 1000 alternatives"; !slices.Equal(item.Notes, []string{want}) {
		t.Errorf("notes: %q, want %q", item.Notes, want)
	}
}
