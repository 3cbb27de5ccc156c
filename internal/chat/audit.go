package chat

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"loquat"
	"loquat/internal/config"
	"loquat/internal/store"
)

// AuditQuery selects entries of the audit.
type AuditQuery struct {
	Action, Target string // "": all
	Limit          int
	PageToken      string
}

// Audit returns a page of the audit, the newest first.
func (s *Service) Audit(ctx context.Context, q AuditQuery) (loquat.AuditList, error) {
	f := store.AuditFilter{Action: q.Action, Target: q.Target}
	if q.PageToken != "" {
		below, err := strconv.ParseInt(q.PageToken, 10, 64)
		if err != nil || below <= 0 {
			return loquat.AuditList{}, badPageToken(q.PageToken)
		}
		f.Below = below
	}
	list, err := store.Read(ctx, s.store, func(r *store.Reader) ([]loquat.AuditEntry, error) { return r.AuditEntries(f, q.Limit+1) })
	out := loquat.AuditList{Audit: list}
	if len(list) > q.Limit {
		out.Audit, out.NextPageToken = list[:q.Limit], list[q.Limit-1].AuditID
	}
	if out.Audit == nil {
		out.Audit = []loquat.AuditEntry{}
	}
	return out, err
}

// auditRoles adds an entry to the audit if server.roles is not what it was when a server last looked.
func (s *Service) auditRoles(ctx context.Context) error {
	roles := s.config.Now().Server.Roles
	text, err := json.Marshal(roles)
	if err != nil {
		return fmt.Errorf("encode roles: %w", err)
	}
	sum := sha256.Sum256(text)
	now := loquat.AuditDetail("roles", slices.Sorted(maps.Keys(roles)), "sha256", hex.EncodeToString(sum[:]))
	changed := func(r *store.Reader) (bool, error) {
		last, err := r.AuditEntries(store.AuditFilter{Action: loquat.AuditRolesChanged}, 1)
		if err != nil || len(last) == 0 {
			return len(roles) > 0, err
		}
		return last[0].Detail.String("sha256") != now.String("sha256"), nil
	}
	if yes, err := store.Read(ctx, s.store, changed); err != nil || !yes {
		return err
	}
	return s.store.Update(ctx, func(tx *store.Tx) error {
		if yes, err := changed(&tx.Reader); err != nil || !yes {
			return err
		}
		return tx.Audit(loquat.AuditEntry{Action: loquat.AuditRolesChanged, Target: "server.roles", Actor: loquat.Actor{Kind: loquat.ActorConfiguration}, Detail: now})
	})
}

// maxConfigEntries bounds how many entries one reload of the configuration adds.
const maxConfigEntries = 1000

// AuditConfig adds an entry to the audit for each key of the configuration that was changed. The entry has the
// new value, if it is not large.
func (s *Service) AuditConfig(ctx context.Context, changes []config.Change) error {
	if len(changes) == 0 {
		return nil
	}
	return s.store.Update(ctx, func(tx *store.Tx) error {
		for _, c := range changes[:min(len(changes), maxConfigEntries)] {
			detail := loquat.AuditDetail("restart", c.Restart)
			if c.Value != nil && len(c.Value) <= loquat.MaxDetail {
				detail["value"] = c.Value
			}
			if err := tx.Audit(loquat.AuditEntry{Action: loquat.AuditConfigChanged, Target: loquat.Clip(c.Key, loquat.Excerpt), Actor: loquat.ActorOf(ctx), Detail: detail}); err != nil {
				return err
			}
		}
		if more := len(changes) - maxConfigEntries; more > 0 {
			return tx.Audit(loquat.AuditEntry{Action: loquat.AuditConfigChanged, Target: "further keys", Actor: loquat.ActorOf(ctx), Detail: loquat.AuditDetail("more", more)})
		}
		return nil
	})
}

// Reconfigure makes a configuration count that Options.Config holds now. Requests that run go on with what they
// began with.
func (s *Service) Reconfigure() {
	s.settings.Reconfigure()
	if err := s.auditRoles(s.life); err != nil && s.life.Err() == nil {
		s.log.Warn("the roles could not be compared with those of before", "error", err)
	}
}
