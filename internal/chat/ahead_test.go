package chat_test

import (
	"context"
	"sync/atomic"
	"testing"

	"loquat/internal/chat"
	"loquat/internal/store"
)

// slowReturn is a database whose commits are on disk for a while before the store
// learns of it.
type slowReturn struct {
	store.Driver
	slow      atomic.Bool
	committed chan struct{}
	goOn      chan struct{}
}

func (d *slowReturn) Write(ctx context.Context, fn func(store.SQL) error) error {
	err := d.Driver.Write(ctx, fn)
	if d.slow.CompareAndSwap(true, false) {
		close(d.committed)
		<-d.goOn
	}
	return err
}

// A snapshot may be a commit ahead of what the store has in memory. Who goes on from
// its cursor is not told that it was never given.
func TestCursorAheadOfMemory(t *testing.T) {
	disk := &slowReturn{committed: make(chan struct{}), goOn: make(chan struct{})}
	r := newRigOn(t, func(db store.Driver) store.Driver { disk.Driver = db; return disk })
	id := r.create(chat.NewSession{}).SessionID
	disk.slow.Store(true)
	appended := make(chan error, 1)
	go func() {
		_, err := r.AppendMessage(context.Background(), chat.Call{}, id, chat.NewMessage{Role: "user", Content: "hello"})
		appended <- err
	}()
	<-disk.committed
	snapshot, err := r.Session(t.Context(), id)
	if err != nil || len(snapshot.Messages) != 1 {
		t.Errorf("the snapshot has %d messages: %v", len(snapshot.Messages), err)
	}
	for _, q := range []chat.EventQuery{{Since: &snapshot.CursorEventID}, {Since: &snapshot.CursorEventID, SessionID: id}} {
		if w, err := r.Events(t.Context(), q); err != nil || len(w.Events) != 0 {
			t.Errorf("after the cursor come %d events: %v", len(w.Events), err)
		}
	}
	never := snapshot.CursorEventID + 1
	if _, err := r.Events(t.Context(), chat.EventQuery{Since: &never}); err == nil {
		t.Error("an id that was never given is taken")
	}
	close(disk.goOn)
	if err := <-appended; err != nil {
		t.Error(err)
	}
}
