package store

import (
	"database/sql"
	"errors"
	"time"
)

// A meter counts what one user, or one token, uses, over all nodes: its rows are changed in the
// transactions that they count. The name of a meter is chosen by package chat.

// meterWindow is the time over which requests are counted, in seconds.
const meterWindow = 60

// RequestsOf returns after how many seconds another request may begin, if a meter has counted most
// within the last minute; otherwise 0.
func (r *Reader) RequestsOf(meter string, most int, at time.Time) (wait int, err error) {
	now := at.Unix()
	// The second in which the window began counts whole, so that no minute has more than most. The clocks of nodes
	// differ, so what seems to come counts too, but not what a clock counted that was far ahead and was set back.
	var n int
	var oldest sql.NullInt64
	err = one(r.q, `SELECT CAST(coalesce(sum(requests), 0) AS BIGINT), min(second) FROM meter_seconds WHERE meter = ? AND second >= ? AND second <= ?`,
		[]any{meter, now - meterWindow, now + meterWindow}, &n, &oldest)
	if err == nil && n >= most {
		wait = int(max(1, oldest.Int64+meterWindow+1-now))
	}
	return wait, err
}

// CountRequest makes a meter count a request that begins now.
func (tx *Tx) CountRequest(meter string) error {
	return tx.exec(`INSERT INTO meter_seconds (meter, second, requests) VALUES (?, ?, 1)
		ON CONFLICT (meter, second) DO UPDATE SET requests = meter_seconds.requests + 1`, meter, tx.Now.Unix())
}

// UnendedOf returns how many requests and calls that count for a meter have not ended. It counts at most limit
// requests.
func (r *Reader) UnendedOf(meter string, limit int) (n int, err error) {
	gone, args := r.isGone(`owner`)
	err = one(r.q, `SELECT (SELECT count(*) FROM (SELECT 1 FROM requests r JOIN sessions s ON s.sid = r.sid
		WHERE r.meter = ? AND r.meter <> '' AND r.status IN ('queued', 'running') AND s.deleted = 0 LIMIT ?) AS unended)
		+ (SELECT CAST(coalesce(sum(calls), 0) AS BIGINT) FROM meter_calls WHERE meter = ? AND NOT `+gone+`)`, append([]any{meter, limit, meter}, args...), &n)
	return n, err
}

// BeginCall makes a meter count a call that is no request of a session, until EndCall, or until the process of the
// owner ends.
func (tx *Tx) BeginCall(meter, owner string) error {
	return tx.exec(`INSERT INTO meter_calls (meter, owner, calls) VALUES (?, ?, 1)
		ON CONFLICT (meter, owner) DO UPDATE SET calls = meter_calls.calls + 1`, meter, owner)
}

// EndCall ends what BeginCall began.
func (tx *Tx) EndCall(meter, owner string) error {
	if err := tx.exec(`UPDATE meter_calls SET calls = calls - 1 WHERE meter = ? AND owner = ?`, meter, owner); err != nil {
		return err
	}
	return tx.exec(`DELETE FROM meter_calls WHERE meter = ? AND owner = ? AND calls <= 0`, meter, owner)
}

// Metered is what a meter has counted today.
type Metered struct {
	Tokens  int64
	Largest int64         // tokens of the largest request that has ended; 0: none has
	Left    time.Duration // until tomorrow
}

// MeteredToday returns what a meter has counted today.
func (r *Reader) MeteredToday(meter string, now time.Time) (m Metered, err error) {
	now = now.UTC()
	m.Left = now.Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
	err = one(r.q, `SELECT tokens, largest FROM meter_days WHERE meter = ? AND day = ?`, []any{meter, dayOf(now)}, &m.Tokens, &m.Largest)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return m, err
}

// Charge makes the meter of a request count all the tokens that the request has used so far, once.
func (tx *Tx) Charge(q *Request, used int64) error {
	if q.Meter == "" || used == q.Charged {
		return nil
	}
	if err := tx.CountTokens(q.Meter, used-q.Charged, 0); err != nil {
		return err
	}
	q.Charged = used
	return tx.exec(`UPDATE requests SET charged = ? WHERE rid = ?`, used, q.RID)
}

// ChargeEnded is Charge for a request that ends.
func (tx *Tx) ChargeEnded(q *Request, used int64) error {
	if q.Meter == "" {
		return nil
	}
	charged := q.Charged
	q.Charged = used
	return tx.CountTokens(q.Meter, used-charged, used)
}

// CountTokens makes a meter count tokens, and the tokens of a request that has ended, 0 for none.
func (tx *Tx) CountTokens(meter string, tokens, request int64) error {
	return tx.exec(`INSERT INTO meter_days (meter, day, tokens, largest) VALUES (?, ?, ?, ?)
		ON CONFLICT (meter, day) DO UPDATE SET tokens = meter_days.tokens + excluded.tokens,
		largest = CASE WHEN meter_days.largest < excluded.largest THEN excluded.largest ELSE meter_days.largest END`, meter, dayOf(tx.Now), tokens, request)
}

// SessionsOf returns how many sessions a user has, at most limit.
func (r *Reader) SessionsOf(user string, limit int) (n int, err error) {
	err = one(r.q, `SELECT count(*) FROM (SELECT 1 FROM sessions WHERE user_id = ? AND user_id <> '' AND deleted = 0 LIMIT ?) AS owned`, []any{user, limit}, &n)
	return n, err
}

// BytesOf returns the size of the messages and images in the sessions of a user, with the messages of kept
// alternatives, whose images are images of their session too.
func (r *Reader) BytesOf(user string) (bytes int64, err error) {
	err = one(r.q, `SELECT CAST(coalesce(sum(s.message_bytes + (SELECT coalesce(sum(a.size), 0) FROM assets a WHERE a.sid = s.sid)
		+ (SELECT coalesce(sum(k.message_bytes), 0) FROM alternatives e JOIN sessions k ON k.sid = e.kept WHERE e.sid = s.sid)), 0) AS BIGINT)
		FROM sessions s WHERE s.user_id = ? AND s.user_id <> '' AND s.deleted = 0`, []any{user}, &bytes)
	return bytes, err
}

// forgetMeters removes what meters counted before it could matter.
func (tx *Tx) forgetMeters() (more bool, err error) {
	second, day := tx.Now.Unix()-2*meterWindow, dayOf(tx.Now.Add(-48*time.Hour))
	var old bool
	gone, args := tx.isGone(`owner`)
	err = one(tx.q, `SELECT EXISTS (SELECT 1 FROM meter_seconds WHERE second < ?) OR EXISTS (SELECT 1 FROM meter_days WHERE day < ?)
		OR EXISTS (SELECT 1 FROM meter_calls WHERE `+gone+`)`, append([]any{second, day}, args...), &old)
	if err != nil || !old {
		return false, err
	}
	seconds, err := tx.remove(`DELETE FROM meter_seconds WHERE (meter, second) IN (SELECT meter, second FROM meter_seconds WHERE second < ? LIMIT ?)`, second)
	if err != nil {
		return false, err
	}
	if err := tx.exec(`DELETE FROM meter_calls WHERE `+gone, args...); err != nil {
		return false, err
	}
	days, err := tx.remove(`DELETE FROM meter_days WHERE (meter, day) IN (SELECT meter, day FROM meter_days WHERE day < ? LIMIT ?)`, day)
	return seconds+days > 0, err
}
