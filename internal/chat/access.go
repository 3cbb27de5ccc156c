package chat

import (
	"context"

	"loquat/internal/auth"
	"loquat/internal/store"
)

// StoreID is the random name of the store.
func (s *Service) StoreID() string { return s.store.ID() }

// ServerID is the name of the server where the configuration gives none: that of the
// store, or of the one that it was copied from.
func (s *Service) ServerID() string { return s.store.ServerID() }

// AccessStore keeps what package auth must not forget, in the store of the sessions.
func AccessStore(s *store.Store) auth.Store { return accessStore{s} }

type accessStore struct{ store *store.Store }

func (a accessStore) Load(ctx context.Context) (out auth.Kept, err error) {
	err = a.store.View(ctx, func(r *store.Reader) error {
		keys, err := r.Keys()
		if err != nil {
			return err
		}
		codes, err := r.Codes()
		if err != nil {
			return err
		}
		for _, k := range keys {
			out.Keys = append(out.Keys, auth.Key(k))
		}
		for _, c := range codes {
			out.Codes = append(out.Codes, auth.Code(c))
		}
		return nil
	})
	return out, err
}

func (a accessStore) Change(ctx context.Context, c auth.Change) error {
	return a.store.Update(ctx, func(tx *store.Tx) error { return write(tx, c) })
}

func (a accessStore) Decide(ctx context.Context, public string, decide func(*auth.Code) auth.Change) error {
	return a.store.Update(ctx, func(tx *store.Tx) error {
		row, ok, err := tx.Code(public)
		if err != nil {
			return err
		}
		var code *auth.Code
		if ok {
			c := auth.Code(row)
			code = &c
		}
		return write(tx, decide(code))
	})
}

// write writes a change of keys and codes.
func write(tx *store.Tx, c auth.Change) error {
	for _, id := range c.Remove {
		if err := tx.RemoveKey(id); err != nil {
			return err
		}
	}
	for _, k := range c.Add {
		if err := tx.AddKey(store.Key(k)); err != nil {
			return err
		}
	}
	for _, u := range c.Used {
		if err := tx.UseKey(u.ID, u.Day); err != nil {
			return err
		}
	}
	for _, code := range c.Codes {
		if err := tx.SetCode(store.Code(code)); err != nil {
			return err
		}
	}
	for _, public := range c.Drop {
		if err := tx.DropCode(public); err != nil {
			return err
		}
	}
	return nil
}
