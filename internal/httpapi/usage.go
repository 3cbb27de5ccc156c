package httpapi

import (
	"encoding/csv"
	"net/http"
	"strconv"
	"time"

	"loquat"
	"loquat/internal/httpapi/route"
)

// How many rows a page of usage holds.
const (
	defaultUsageRows = 100
	maxUsageRows     = 1000
)

// usageFields are the fields by which usage is grouped.
var usageFields = []string{loquat.ByDay, loquat.ByUser, loquat.ByAgent, loquat.ByProvider, loquat.ByModel}

func (a *api) usageRoutes() []route.Route {
	return []route.Route{{
		Method: http.MethodGet, Path: "/usage", ID: "listUsage", Tag: "access", Summary: "List what requests have used",
		Users: true, Serve: a.listUsage,
		Responses: []route.Response{{Status: http.StatusOK, Body: loquat.UsageList{}, Doc: "A page of usage, or a CSV file"}},
		Query: []route.Param{
			{Name: "from", Kind: route.Text, Doc: "The first day, in UTC, such as 2026-11-01."},
			{Name: "to", Kind: route.Text, Doc: "The last day."},
			{Name: "user", Kind: route.ID, Doc: "Only that of this user. A token of scope user does not need it, and sees no other."},
			{Name: "agent_id", Kind: route.ID, Doc: "Only that of this agent."},
			{Name: "provider_id", Kind: route.ID, Doc: "Only that of this provider."},
			{Name: "model", Kind: route.ID, Doc: "Only that of this model."},
			{Name: "group_by", Kind: route.TextList, Max: float64(len(usageFields)), OneOf: usageFields, Doc: "Fields whose values a row stands for, by default all; may be given several times."},
			{Name: "format", Kind: route.Text, OneOf: []string{"json", "csv"}, Default: "json", Doc: "csv answers with all rows at once."},
			{Name: "limit", Kind: route.Integer, Min: 1, Max: maxUsageRows, Default: defaultUsageRows, Doc: "How many rows to list."},
			{Name: "page_token", Kind: route.ID, Doc: "The next_page_token of the page before."},
		},
	}}
}

const csvMedia = "text/csv"

func (a *api) listUsage(x *route.Exchange) (err error) {
	q := loquat.UsageQuery{
		From: x.Query.Text("from"), To: x.Query.Text("to"), AgentID: x.Query.Text("agent_id"), ProviderID: x.Query.Text("provider_id"), Model: x.Query.Text("model"),
		GroupBy: x.Query.TextList("group_by"), Limit: defaultUsageRows, PageToken: x.Query.Text("page_token"),
	}
	for at, day := range map[string]string{"query.from": q.From, "query.to": q.To} {
		if _, err := time.Parse(time.DateOnly, day); day != "" && err != nil {
			return loquat.Invalid(at, "has to be a day such as 2026-11-26")
		}
	}
	if q.User, err = userOf(x, "query.user", x.Query.Text("user")); err != nil {
		return err
	}
	if len(q.GroupBy) == 0 {
		q.GroupBy = usageFields
	}
	if n := x.Query.Integer("limit"); n != nil {
		q.Limit = *n
	}
	if x.Query.Text("format") == "csv" {
		return a.usageFile(x, q)
	}
	list, err := a.chat.Usage(x.R.Context(), q)
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, list)
}

// usageFile answers with all rows as CSV.
func (a *api) usageFile(x *route.Exchange, q loquat.UsageQuery) error {
	h := x.W.Header()
	h.Set("Content-Type", csvMedia+"; charset=utf-8; header=present")
	h.Set("Content-Disposition", `attachment; filename="loquat-usage.csv"`)
	h.Set("Cache-Control", "no-store")
	x.W.WriteHeader(http.StatusOK)
	if x.R.Method == http.MethodHead {
		return nil
	}
	out := csv.NewWriter(x.W)
	_ = out.Write([]string{
		"day", "user", "agent_id", "provider_id", "model", "requests", "requests_reported", "requests_estimated", "requests_none", "attempts",
		"input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens", "estimated_input_tokens", "estimated_output_tokens", "cost",
	})
	err := a.chat.EachUsage(x.R.Context(), q, func(u loquat.UsageRow) error {
		record := []string{inert(u.Day), inert(u.User), inert(u.AgentID), inert(u.ProviderID), inert(u.Model)}
		for _, n := range []int64{
			u.Requests, u.OfSource.Reported, u.OfSource.Estimated, u.OfSource.None, u.Attempts,
			u.Reported.Input, u.Reported.CachedInput, u.Reported.Output, u.Reported.Reasoning, u.Estimated.Input, u.Estimated.Output,
		} {
			record = append(record, strconv.FormatInt(n, 10))
		}
		return out.Write(append(record, strconv.FormatFloat(u.Cost, 'f', -1, 64)))
	})
	if out.Flush(); err == nil {
		err = out.Error()
	}
	if err != nil {
		if x.R.Context().Err() == nil {
			a.log.Warn("could not write a file of usage", "error", err)
		}
		panic(http.ErrAbortHandler) // a part must not look like the whole
	}
	return nil
}

// inert returns a text that spreadsheets do not take for a formula.
func inert(text string) string {
	if text != "" && (text[0] == '=' || text[0] == '+' || text[0] == '-' || text[0] == '@' || text[0] == '\t' || text[0] == '\r') {
		return "'" + text
	}
	return text
}
