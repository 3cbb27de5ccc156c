package store

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"loquat"
)

// Bounds of stored webhooks.
const (
	maxWebhooks   = 100
	maxGivenUp    = 1000 // events of one webhook that were given up; above, the oldest are removed
	webhookFields = `webhook_id, url, description, types, user_id, secret, old_secret, old_until, disabled, since_event_id, created_at`
)

// MaxUndelivered is how many events may wait for one webhook.
const MaxUndelivered = 100_000

// Webhooks returns all webhooks, the oldest first, or those with an id.
func (r *Reader) Webhooks(id string) (out []loquat.Webhook, err error) {
	err = eachRow(r.q, `SELECT `+webhookFields+` FROM webhooks WHERE ? = '' OR webhook_id = ? ORDER BY created_at, webhook_id`, []any{id, id}, func(rows *sql.Rows) error {
		var w loquat.Webhook
		var types string
		var until, created int64
		if err := rows.Scan(&w.WebhookID, &w.URL, &w.Description, &types, &w.User, &w.Key, &w.OldKey, &until, &w.Disabled, &w.Since, &created); err != nil {
			return fmt.Errorf("read webhooks: %w", err)
		}
		if err := json.Unmarshal([]byte(types), &w.Types); err != nil {
			return fmt.Errorf("read webhooks: %w", err)
		}
		w.OldUntil, w.CreatedAt = fromMicros(until), fromMicros(created)
		out = append(out, w)
		return nil
	})
	return out, err
}

// Webhook returns a webhook with the numbers of its deliveries.
func (r *Reader) Webhook(id string) (loquat.Webhook, error) {
	list, err := r.Webhooks(id)
	if err != nil {
		return loquat.Webhook{}, err
	}
	if id == "" || len(list) == 0 {
		return loquat.Webhook{}, loquat.Errorf(loquat.CodeNotFound, "there is no webhook %q", loquat.Clip(id, loquat.Excerpt))
	}
	w := list[0]
	return w, r.CountDeliveries(&w)
}

// CountDeliveries sets the numbers of a webhook's deliveries.
func (r *Reader) CountDeliveries(w *loquat.Webhook) error {
	return one(r.q, `SELECT count(CASE failed WHEN 0 THEN 1 END), count(CASE failed WHEN 1 THEN 1 END) FROM webhook_deliveries WHERE webhook_id = ?`,
		[]any{w.WebhookID}, &w.Waiting, &w.Failed)
}

// AddWebhook stores a new webhook. It is sent the events after this transaction.
func (tx *Tx) AddWebhook(w loquat.Webhook) error {
	var n int
	if err := one(tx.q, `SELECT count(*) FROM webhooks`, nil, &n); err != nil {
		return err
	}
	if n >= maxWebhooks {
		return loquat.Errorf(loquat.CodeConflict, "there are %d webhooks already; remove one first", n)
	}
	if n == 0 { // nobody has read the log for webhooks
		if err := tx.SetWebhooksRead(tx.last); err != nil {
			return err
		}
	}
	types, err := json.Marshal(w.Types)
	if err != nil {
		return err
	}
	err = tx.exec(`INSERT INTO webhooks (`+webhookFields+`) VALUES (?, ?, ?, ?, ?, ?, '', 0, '', ?, ?)`,
		w.WebhookID, w.URL, w.Description, string(types), w.User, w.Key, tx.last, micros(w.CreatedAt))
	if err != nil {
		return errors.New("store a webhook: the database refuses it") // an error may quote the secret
	}
	return nil
}

// SetWebhook stores the changes of a webhook. One that was disabled is sent the events after this transaction.
func (tx *Tx) SetWebhook(w loquat.Webhook) error {
	since := `CASE disabled WHEN '' THEN since_event_id ELSE ? END`
	types, err := json.Marshal(w.Types)
	if err != nil {
		return err
	}
	err = tx.exec(`UPDATE webhooks SET url = ?, description = ?, types = ?, secret = ?, old_secret = ?, old_until = ?, since_event_id = `+since+`, disabled = ? WHERE webhook_id = ?`,
		w.URL, w.Description, string(types), w.Key, w.OldKey, micros(w.OldUntil), tx.last, w.Disabled, w.WebhookID)
	if err != nil {
		return errors.New("store a webhook: the database refuses it")
	}
	return nil
}

// RemoveWebhook removes a webhook with what waits for it.
func (tx *Tx) RemoveWebhook(id string) error {
	if err := tx.exec(`DELETE FROM webhook_deliveries WHERE webhook_id = ?`, id); err != nil {
		return err
	}
	return tx.exec(`DELETE FROM webhooks WHERE webhook_id = ?`, id)
}

// WebhooksRead returns the last event of the log from which deliveries were made.
func (r *Reader) WebhooksRead() (id loquat.EventID, err error) {
	err = one(r.q, `SELECT read_event_id FROM webhook_log`, nil, &id)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return id, err
}

// SetWebhooksRead stores the last event of the log from which deliveries were made.
func (tx *Tx) SetWebhooksRead(id loquat.EventID) error {
	return tx.exec(`INSERT INTO webhook_log (id, read_event_id) VALUES (1, ?) ON CONFLICT (id) DO UPDATE SET read_event_id = excluded.read_event_id`, id)
}

// AddDelivery stores an event that is to be delivered. An event is stored once, also if it is read again. It
// disables a webhook for which too many wait.
func (tx *Tx) AddDelivery(w *loquat.Webhook, d loquat.WebhookDelivery) error {
	if w.Waiting >= MaxUndelivered {
		w.Disabled = loquat.WebhookBehind
		return tx.SetWebhook(*w)
	}
	w.Waiting++
	return tx.exec(`INSERT INTO webhook_deliveries (webhook_id, event_id, session_id, type, body, next_at) VALUES (?, ?, ?, ?, ?, ?)
		ON CONFLICT (webhook_id, event_id) DO NOTHING`, w.WebhookID, d.EventID, d.SessionID, d.Type, d.Body, micros(tx.Now))
}

const deliveryFields = `d.event_id, d.session_id, d.type, d.failed, d.attempts, d.next_at, d.error`

func scanDelivery(rows *sql.Rows, more ...any) (d loquat.WebhookDelivery, err error) {
	var next int64
	if err := rows.Scan(append([]any{&d.EventID, &d.SessionID, &d.Type, &d.Failed, &d.Attempts, &next, &d.Error}, more...)...); err != nil {
		return d, fmt.Errorf("read deliveries: %w", err)
	}
	if !d.Failed {
		at := fromMicros(next)
		d.NextAt = &at
	}
	return d, nil
}

// DueDeliveries returns the first waiting event of each session that may be tried now, the oldest first.
func (r *Reader) DueDeliveries(webhookID string, now time.Time, limit int) (out []loquat.WebhookDelivery, err error) {
	// CROSS: SQLite would otherwise read the inner SELECT again for each event that is due.
	err = eachRow(r.q, `SELECT `+deliveryFields+` FROM
		(SELECT min(event_id) AS first FROM webhook_deliveries WHERE webhook_id = ? AND failed = 0 GROUP BY session_id) h CROSS JOIN webhook_deliveries d
		WHERE d.webhook_id = ? AND d.event_id = h.first AND d.next_at <= ? ORDER BY d.event_id LIMIT ?`, []any{webhookID, webhookID, micros(now), limit}, func(rows *sql.Rows) error {
		d, err := scanDelivery(rows)
		out = append(out, d)
		return err
	})
	return out, err
}

// FirstDelivery returns the first waiting event of a session with its body.
func (r *Reader) FirstDelivery(webhookID, sessionID string) (d loquat.WebhookDelivery, ok bool, err error) {
	err = eachRow(r.q, `SELECT `+deliveryFields+`, d.body FROM webhook_deliveries d WHERE d.webhook_id = ? AND d.session_id = ? AND d.failed = 0
		ORDER BY d.event_id LIMIT 1`, []any{webhookID, sessionID}, func(rows *sql.Rows) (err error) {
		var body []byte
		d, err = scanDelivery(rows, &body)
		d.Body, ok = body, true
		return err
	})
	return d, ok, err
}

// Deliveries returns what was not delivered to a webhook, after an event.
func (r *Reader) Deliveries(webhookID string, failedOnly bool, after loquat.EventID, limit int) (out []loquat.WebhookDelivery, err error) {
	least := 0
	if failedOnly {
		least = 1
	}
	err = eachRow(r.q, `SELECT `+deliveryFields+` FROM webhook_deliveries d WHERE d.webhook_id = ? AND d.failed >= ? AND d.event_id > ? ORDER BY d.event_id LIMIT ?`,
		[]any{webhookID, least, after, limit}, func(rows *sql.Rows) error {
			d, err := scanDelivery(rows)
			out = append(out, d)
			return err
		})
	return out, err
}

// EndDelivery removes an event that was delivered.
func (tx *Tx) EndDelivery(webhookID string, event loquat.EventID) error {
	return tx.exec(`DELETE FROM webhook_deliveries WHERE webhook_id = ? AND event_id = ?`, webhookID, event)
}

// DelayDelivery stores that an attempt has failed, and when the next one is. With d.Failed it is given up.
func (tx *Tx) DelayDelivery(webhookID string, d loquat.WebhookDelivery) error {
	next := int64(0)
	if d.NextAt != nil {
		next = micros(*d.NextAt)
	}
	failed := 0
	if d.Failed {
		failed = 1
	}
	err := tx.exec(`UPDATE webhook_deliveries SET failed = ?, attempts = ?, next_at = ?, error = ? WHERE webhook_id = ? AND event_id = ?`,
		failed, d.Attempts, next, d.Error, webhookID, d.EventID)
	if err != nil || !d.Failed {
		return err
	}
	return tx.exec(`DELETE FROM webhook_deliveries WHERE webhook_id = ? AND failed = 1 AND event_id NOT IN
		(SELECT event_id FROM webhook_deliveries WHERE webhook_id = ? AND failed = 1 ORDER BY event_id DESC LIMIT ?)`, webhookID, webhookID, maxGivenUp)
}

// Resend makes an event that was given up wait again, or all of a webhook with event 0. It returns their number.
func (tx *Tx) Resend(webhookID string, event loquat.EventID) (int64, error) {
	tx.wrote = true
	return tx.q.Exec(`UPDATE webhook_deliveries SET failed = 0, attempts = 0, next_at = ? WHERE webhook_id = ? AND failed = 1 AND (? = 0 OR event_id = ?)`,
		micros(tx.Now), webhookID, event, event)
}
