package storetest

import (
	"reflect"
	"testing"

	"loquat"
	"loquat/internal/store"
)

func oldRevisions(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 2)
	update(t, s, func(tx *store.Tx) error {
		h, err := tx.Head("a")
		if err != nil {
			return err
		}
		tx.Describe(&h, "other", loquat.Object{}.Set("name", "renamed"))
		return tx.Checkpoint(&h, nil, false)
	})
	view(t, s, func(r *store.Reader) error {
		h, err := r.Head("a")
		if err != nil {
			return err
		}
		old, err := r.History(h, h.Rev-1, false)
		if err != nil {
			return err
		}
		now, err := r.History(h, h.Rev, true)
		if err != nil {
			return err
		}
		if old.AgentID != "default" || old.Metadata.String("name") != "a" || len(old.Versions) != 2 || old.To != h.Rev-1 {
			t.Errorf("the old revision is %+v", old)
		}
		if now.AgentID != "other" || now.Metadata.String("name") != "renamed" || len(now.Versions) != 0 || now.To != h.Rev {
			t.Errorf("the new revision is %+v", now)
		}
		rev, err := r.RevisionAt(h, h.Checkpoint)
		if err != nil || rev != h.Rev {
			t.Errorf("revision at the checkpoint is %d, %v; want %d", rev, err, h.Rev)
		}
		if _, err := r.RevisionAt(h, h.Checkpoint+1); loquat.CodeOf(err) != loquat.CodeGone {
			t.Errorf("a revision at no checkpoint: %v", err)
		}
		return nil
	})
}

func checkpoints(t *testing.T, open Open) {
	s := start(t, open)
	create(t, s, "a", 0)
	var head store.Head
	update(t, s, func(tx *store.Tx) (err error) {
		if head, err = tx.Head("a"); err != nil {
			return err
		}
		return tx.Checkpoint(&head, nil, true)
	})
	if head.Checkpoint != s.Last() || head.Cursor != head.Checkpoint-1 {
		t.Errorf("cursor %s, checkpoint %s, last %s: the cursor has to stay", head.Cursor, head.Checkpoint, s.Last())
	}
	view(t, s, func(r *store.Reader) error {
		got, err := r.Head("a")
		if err == nil && !reflect.DeepEqual(got, head) {
			t.Errorf("stored head %+v, want %+v", got, head)
		}
		return err
	})
}
