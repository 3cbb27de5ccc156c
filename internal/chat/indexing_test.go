package chat_test

import (
	"fmt"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/store"
)

// Messages of before the start are indexed in the background; meanwhile searches and Ready say
// what is missing. A service that is stopped in the middle leaves the rest to the next.
func TestMessagesOfBeforeAreIndexed(t *testing.T) {
	r := newRig(t)
	const n = 6000
	for i := range n / 1000 {
		p := loquat.NewSession{SessionID: fmt.Sprint("s", i)}
		for j := range 1000 {
			p.Messages = append(p.Messages, loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprintf("common word%d", 1000*i+j)})
		}
		r.create(p)
		if i == n/2000 {
			r.restart()
		}
	}
	oldest := loquat.SearchQuery{Text: "word0", Limit: 10}
	sawLeft := false
	r.waitFor("the messages to be indexed", func() bool {
		left := r.Ready(t.Context()).Detail["search"]
		sawLeft = sawLeft || strings.Contains(left, "still to be indexed")
		result, err := r.Search(t.Context(), oldest)
		if err != nil {
			t.Fatal(err)
		}
		if len(result.Hits) == 0 && !result.Incomplete {
			t.Fatal("a search misses a message and does not say so")
		}
		queued, err := store.Read(t.Context(), r.store, func(v *store.Reader) (int, error) { return v.Waiting(n) })
		if err != nil {
			t.Fatal(err)
		}
		return queued == 0 && left == ""
	})
	if result, err := r.Search(t.Context(), oldest); err != nil || len(result.Hits) != 1 || result.Incomplete {
		t.Errorf("after indexing: %+v, %v", result, err)
	}
	if !sawLeft {
		t.Log("the indexing was too fast to be seen at Ready")
	}
}
