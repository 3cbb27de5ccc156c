package store

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"loquat"
)

// UsageOf says whose usage is counted. All are texts as they were when the request ended.
type UsageOf struct{ User, AgentID, ProviderID, Model string }

// nano is the number of units of the column cost for one unit of the currency.
const nano = 1e9

// encodeUsage returns what the column usage of a request holds.
func encodeUsage(u *loquat.Usage) (any, error) {
	if u == nil {
		return nil, nil
	}
	encoded, err := json.Marshal(u)
	if err != nil {
		return nil, fmt.Errorf("encode usage: %w", err)
	}
	return encoded, nil
}

func decodeUsage(encoded []byte) (*loquat.Usage, error) {
	if encoded == nil {
		return nil, nil
	}
	u := new(loquat.Usage)
	if err := json.Unmarshal(encoded, u); err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return u, nil
}

// dayOf returns a day as usage names it.
func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// AddUsage counts the usage of ended requests, or, with requests 0, of calls that belong to none.
func (tx *Tx) AddUsage(of UsageOf, u loquat.Usage, requests int) error {
	reported, estimated := 0, 0
	switch u.Source {
	case loquat.UsageReported:
		reported = requests
	case loquat.UsageEstimated:
		estimated = requests
	}
	cost := int64(0)
	if u.Cost != nil {
		cost = int64(math.Round(*u.Cost * nano))
	}
	err := tx.exec(`INSERT INTO usage (day, user_id, agent_id, provider_id, model, requests, requests_reported, requests_estimated, attempts,
		input_tokens, cached_input_tokens, output_tokens, reasoning_tokens, estimated_input_tokens, estimated_output_tokens, cost)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (day, user_id, agent_id, provider_id, model) DO UPDATE SET
		requests = usage.requests + excluded.requests, requests_reported = usage.requests_reported + excluded.requests_reported,
		requests_estimated = usage.requests_estimated + excluded.requests_estimated, attempts = usage.attempts + excluded.attempts,
		input_tokens = usage.input_tokens + excluded.input_tokens, cached_input_tokens = usage.cached_input_tokens + excluded.cached_input_tokens,
		output_tokens = usage.output_tokens + excluded.output_tokens, reasoning_tokens = usage.reasoning_tokens + excluded.reasoning_tokens,
		estimated_input_tokens = usage.estimated_input_tokens + excluded.estimated_input_tokens,
		estimated_output_tokens = usage.estimated_output_tokens + excluded.estimated_output_tokens, cost = usage.cost + excluded.cost`,
		dayOf(tx.Now), of.User, of.AgentID, of.ProviderID, of.Model, requests, reported, estimated, u.Attempts,
		u.Reported.Input, u.Reported.CachedInput, u.Reported.Output, u.Reported.Reasoning, u.Estimated.Input, u.Estimated.Output, cost)
	if err != nil {
		return fmt.Errorf("count usage: %w", err)
	}
	return nil
}

// usageColumns are the columns of the fields by which usage is grouped, in the order of a row.
var usageColumns = []struct{ field, column string }{
	{loquat.ByDay, "day"}, {loquat.ByUser, "user_id"}, {loquat.ByAgent, "agent_id"}, {loquat.ByProvider, "provider_id"}, {loquat.ByModel, "model"},
}

// EachUsage calls fn with the rows of a query, sorted by their groups, from the row with the number skip
// on.
func (r *Reader) EachUsage(q loquat.UsageQuery, skip, limit int, fn func(loquat.UsageRow) error) error {
	var selected, groups []string
	for _, c := range usageColumns {
		if slices.Contains(q.GroupBy, c.field) {
			selected, groups = append(selected, c.column), append(groups, c.column)
		} else {
			selected = append(selected, "''")
		}
	}
	where, args := usageWhere(q)
	by := ""
	if len(groups) > 0 {
		by = ` GROUP BY ` + strings.Join(groups, ", ") + ` ORDER BY ` + strings.Join(groups, ", ")
	}
	query := `SELECT ` + strings.Join(selected, ", ")
	for _, sum := range []string{
		"requests", "requests_reported", "requests_estimated", "attempts", "input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens",
		"estimated_input_tokens", "estimated_output_tokens", "cost",
	} {
		query += `, CAST(coalesce(sum(` + sum + `), 0) AS BIGINT)`
	}
	return eachRow(r.q, query+` FROM usage`+where+by+` LIMIT ? OFFSET ?`, append(args, limit, skip), func(rows *sql.Rows) error {
		var u loquat.UsageRow
		var cost int64
		err := rows.Scan(&u.Day, &u.User, &u.AgentID, &u.ProviderID, &u.Model, &u.Requests, &u.OfSource.Reported, &u.OfSource.Estimated, &u.Attempts,
			&u.Reported.Input, &u.Reported.CachedInput, &u.Reported.Output, &u.Reported.Reasoning, &u.Estimated.Input, &u.Estimated.Output, &cost)
		if err != nil {
			return fmt.Errorf("read usage: %w", err)
		}
		u.OfSource.None, u.Cost = u.Requests-u.OfSource.Reported-u.OfSource.Estimated, float64(cost)/nano
		return fn(u)
	})
}

// usageWhere returns the conditions of a query.
func usageWhere(q loquat.UsageQuery) (where string, args []any) {
	var conditions []string
	add := func(condition, value string, given bool) {
		if given {
			conditions, args = append(conditions, condition), append(args, value)
		}
	}
	add("day >= ?", q.From, q.From != "")
	add("day <= ?", q.To, q.To != "")
	add("user_id = ?", q.User, q.User != "")
	add("agent_id = ?", q.AgentID, q.AgentID != "")
	add("provider_id = ?", q.ProviderID, q.ProviderID != "")
	add("model = ?", q.Model, q.Model != "")
	if len(conditions) > 0 {
		where = ` WHERE ` + strings.Join(conditions, " AND ")
	}
	return where, args
}
