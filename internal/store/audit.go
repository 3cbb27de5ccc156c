package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"loquat"
)

// auditAge is how long entries of the audit are kept.
const auditAge = 2 * 365 * 24 * time.Hour

// Audit adds an entry to the audit, at the time of the transaction.
func (tx *Tx) Audit(e loquat.AuditEntry) error {
	actor, detail, err := e.EncodeAudit()
	if err != nil {
		return fmt.Errorf("encode an entry of the audit: %w", err)
	}
	return tx.exec(`INSERT INTO audit (at, action, target, actor, detail) VALUES (?, ?, ?, ?, ?)`, micros(tx.Now), e.Action, e.Target, actor, detail)
}

// AuditFilter selects entries of the audit.
type AuditFilter struct {
	Action, Target string // "": all
	Below          int64  // only entries older than the one with this id; 0: all
}

// AuditEntries returns the newest entries, at most limit.
func (r *Reader) AuditEntries(f AuditFilter, limit int) (out []loquat.AuditEntry, err error) {
	where, args := `1 = 1`, []any(nil)
	for condition, value := range map[string]string{" AND action = ?": f.Action, " AND target = ?": f.Target} {
		if value != "" {
			where, args = where+condition, append(args, value)
		}
	}
	if f.Below > 0 {
		where, args = where+" AND audit_id < ?", append(args, f.Below)
	}
	err = eachRow(r.q, `SELECT audit_id, at, action, target, actor, detail FROM audit WHERE `+where+` ORDER BY audit_id DESC LIMIT ?`, append(args, limit), func(rows *sql.Rows) error {
		var e loquat.AuditEntry
		var id, at int64
		var actor, detail []byte
		if err := rows.Scan(&id, &at, &e.Action, &e.Target, &actor, &detail); err != nil {
			return fmt.Errorf("read the audit: %w", err)
		}
		e.AuditID, e.At = strconv.FormatInt(id, 10), fromMicros(at)
		if err := json.Unmarshal(actor, &e.Actor); err != nil {
			return fmt.Errorf("read the audit: %w", err)
		}
		if err := json.Unmarshal(detail, &e.Detail); err != nil {
			return fmt.Errorf("read the audit: %w", err)
		}
		out = append(out, e)
		return nil
	})
	return out, err
}

// forgetAudit removes entries that are too old.
func (tx *Tx) forgetAudit() (more bool, err error) {
	before := micros(tx.Now.Add(-auditAge))
	var oldest sql.NullInt64
	if err := one(tx.q, `SELECT at FROM audit ORDER BY audit_id LIMIT 1`, nil, &oldest); err == sql.ErrNoRows || err == nil && oldest.Int64 >= before {
		return false, nil
	} else if err != nil {
		return false, err
	}
	n, err := tx.remove(`DELETE FROM audit WHERE audit_id IN (SELECT audit_id FROM audit WHERE at < ? ORDER BY audit_id LIMIT ?)`, before)
	return n > 0, err
}
