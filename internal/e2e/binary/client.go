package binary

import (
	"context"
	"testing"

	"loquat"
	"loquat/internal/client"
)

// FollowRequest returns all events of a request.
func FollowRequest(ctx context.Context, t *testing.T, c *client.Client, requestID string) []loquat.Event {
	t.Helper()
	var out []loquat.Event
	for e, err := range c.Follow(ctx, client.Query{RequestID: requestID, OmitSession: true}) {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, e)
		if e.Type == loquat.RequestCompleted {
			return out
		}
	}
	t.Fatalf("request %s has no end", requestID)
	return nil
}

// EmptyFold returns the fold of a session from its creation on.
func EmptyFold(id string) *loquat.Fold {
	return loquat.NewFold(loquat.Snapshot{Session: loquat.Session{SessionID: id}})
}

// CreateSession creates a session, with overrides unless they are nil.
func CreateSession(ctx context.Context, t *testing.T, c *client.Client, overrides map[string]any) loquat.Snapshot {
	t.Helper()
	var meta loquat.Object
	if overrides != nil {
		meta = loquat.Object{}.Set("overrides", overrides)
	}
	s, err := c.CreateSession(ctx, loquat.NewSession{Metadata: meta})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
