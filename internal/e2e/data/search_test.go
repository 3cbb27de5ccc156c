package data_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// A server that is killed while it indexes messages goes on at the next start. Until all are
// indexed, a search that misses a message says that it is incomplete.
func TestIndexingIsKilled(t *testing.T) {
	const sessions, each = 12, 1000
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	start := func() (*binary.Process, *client.Client) {
		p := binary.Start(t, nil, "serve", "--listen", "127.0.0.1:0", "--data", dir)
		c, err := client.New(p.URL, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.CloseIdleConnections)
		return p, c
	}
	server, c := start()
	for i := range sessions {
		s := loquat.NewSession{SessionID: fmt.Sprint("s", i)}
		for j := range each {
			s.Messages = append(s.Messages, loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprintf("common n%d", each*i+j)})
		}
		if _, err := c.CreateSession(ctx, s); err != nil {
			t.Fatal(err)
		}
		if i == sessions/2 {
			server.Kill(t)
			server, c = start()
		}
	}
	server.Kill(t)
	_, c = start()
	for complete := false; !complete; time.Sleep(20 * time.Millisecond) {
		result, err := c.Search(ctx, loquat.SearchQuery{Text: "n0"})
		if err != nil {
			t.Fatal(err)
		}
		if complete = !result.Incomplete; complete && len(result.Hits) != 1 {
			t.Fatalf("a search that is complete finds %+v", result.Hits)
		}
	}
	for n := range sessions * each {
		if n%997 != 0 {
			continue
		}
		result, err := c.Search(ctx, loquat.SearchQuery{Text: fmt.Sprint("n", n)})
		if err != nil || len(result.Hits) != 1 || *result.Hits[0].Index != n%each {
			t.Errorf("message %d: %+v, %v", n, result, err)
		}
	}
	list, err := c.Sessions(ctx, loquat.SessionQuery{Text: "comm*", Limit: 200})
	if err != nil || len(list.Sessions) == 0 || list.Sessions[0].Match == nil {
		t.Errorf("the sessions of a search: %+v, %v", list, err)
	}
}
