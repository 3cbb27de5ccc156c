package loquat

import (
	"encoding/json"
	"strconv"
)

// Tokens counts what one or more calls of a model have used.
type Tokens struct {
	Input       int64 `json:"input_tokens"`
	CachedInput int64 `json:"cached_input_tokens,omitempty" doc:"The part of input_tokens that the backend had cached."`
	Output      int64 `json:"output_tokens"`
	Reasoning   int64 `json:"reasoning_tokens,omitempty" doc:"The part of output_tokens that was reasoning."`
}

// Add returns the sum of two counts.
func (t Tokens) Add(o Tokens) Tokens {
	return Tokens{t.Input + o.Input, t.CachedInput + o.CachedInput, t.Output + o.Output, t.Reasoning + o.Reasoning}
}

// All returns the number of all tokens.
func (t Tokens) All() int64 { return t.Input + t.Output }

// Attempt is one call of a backend, after its end.
type Attempt struct {
	Reported *Tokens // nil: the backend reported no usage
	Received int     // bytes of text, reasoning and arguments of tool calls
	Refused  bool    // it cost nothing: the backend was not reached, or answered with an error status
}

// The values of Usage.Source.
const (
	UsageReported  = "reported"  // all that the request used was reported by backends
	UsageEstimated = "estimated" // some of it is an estimate
	UsageNone      = "none"      // no backend has worked on the request
)

// Usage is what a request has used: what backends reported, and an estimate of what calls have used
// that were cut before they reported anything.
type Usage struct {
	Source    string   `json:"source" enum:"reported,estimated,none" doc:"estimated: some of it is an estimate."`
	Attempts  int      `json:"attempts" doc:"How often a backend was called, with those that failed."`
	Reported  Tokens   `json:"reported" doc:"The sum of what backends reported."`
	Estimated Tokens   `json:"estimated" doc:"An estimate of what calls used whose backend reported nothing."`
	Cost      *float64 `json:"cost,omitempty" doc:"In the currency of the prices of the configuration; absent without a price."`
}

// Add counts a call. Input is the estimated number of input tokens of a call that reported nothing.
func (u *Usage) Add(a Attempt, input int64) {
	u.Attempts++
	switch {
	case a.Reported != nil:
		u.Reported = u.Reported.Add(*a.Reported)
		if u.Source != UsageEstimated {
			u.Source = UsageReported
		}
	case !a.Refused:
		u.Estimated = u.Estimated.Add(Tokens{Input: input, Output: EstimateTokens(a.Received)})
		u.Source = UsageEstimated
	}
	if u.Source == "" {
		u.Source = UsageNone
	}
}

// Plus returns the sum of two usages, without their costs.
func (u Usage) Plus(o Usage) Usage {
	sum := Usage{Source: UsageNone, Attempts: u.Attempts + o.Attempts, Reported: u.Reported.Add(o.Reported), Estimated: u.Estimated.Add(o.Estimated)}
	for _, source := range []string{UsageReported, UsageEstimated} {
		if u.Source == source || o.Source == source {
			sum.Source = source
		}
	}
	return sum
}

// All returns the number of all tokens, reported and estimated.
func (u Usage) All() int64 { return u.Reported.All() + u.Estimated.All() }

// EstimateTokens estimates the tokens of a text by its size in bytes.
func EstimateTokens(size int) int64 { return (int64(size) + 3) / 4 }

// What an estimate counts for a message besides its text.
const (
	messageTokens = 3
	imageTokens   = 85
)

// EstimateInput estimates the input tokens of a call with these messages, which may be the last ones of
// a session. What the backend reported for the last reply counts for all messages up to it: then whole
// is true, and earlier messages would add nothing.
func EstimateInput(messages []Message) (n int64, whole bool) {
	for i := len(messages) - 1; i >= 0; i-- {
		m := messages[i]
		if t := TokensIn(m.Metadata); t != nil && m.Role == RoleAssistant && t.Input > 0 {
			return n + t.Input + max(0, t.Output-t.Reasoning), true // some backends count reasoning apart from the output
		}
		n += messageTokens + EstimateTokens(len(m.Content)) + EstimateTokens(len(m.Metadata[MetaToolCalls]))
		var images []json.RawMessage
		_ = json.Unmarshal(m.Metadata[MetaAttachments], &images)
		n += imageTokens * int64(len(images))
	}
	return n, false
}

// TokensIn returns the usage that a backend reported for a reply, from the metadata of its message, or
// nil.
func TokensIn(metadata Object) *Tokens {
	if metadata[MetaUsage] == nil {
		return nil
	}
	t := Tokens{
		Input: countIn(metadata[MetaUsagePrompt]), Output: countIn(metadata[MetaUsageCompletion]), Reasoning: countIn(metadata[MetaUsageReasoning]),
		CachedInput: countIn(metadata.Object(MetaUsage).Object("prompt_tokens_details")["cached_tokens"]),
	}
	if t == (Tokens{}) {
		return nil
	}
	return &t
}

// MaxCount is the largest count of tokens that is believed. Backends, and clients in the metadata of messages,
// may give any number, and sums of counts must not overflow.
const MaxCount = 1 << 53

// countIn reads a count. It returns 0 for anything else, and for a count above MaxCount.
func countIn(raw json.RawMessage) int64 {
	n, _ := strconv.ParseInt(string(raw), 10, 64)
	if n > MaxCount {
		return 0
	}
	return max(0, n)
}

// UsageRow is what the requests have used that share the values of the fields by which a list is grouped.
type UsageRow struct {
	Day        string `json:"day,omitempty" doc:"Of the end of the requests, in UTC, such as 2026-11-26."`
	User       string `json:"user,omitempty"`
	AgentID    string `json:"agent_id,omitempty"`
	ProviderID string `json:"provider_id,omitempty"`
	Model      string `json:"model,omitempty"`

	Requests  int64    `json:"requests" doc:"Requests that have ended."`
	OfSource  OfSource `json:"requests_by_source"`
	Attempts  int64    `json:"attempts"`
	Reported  Tokens   `json:"reported"`
	Estimated Tokens   `json:"estimated"`
	Cost      float64  `json:"cost" doc:"In the currency of the prices of the configuration; 0 for models without a price."`
}

// OfSource counts requests by the source of their usage.
type OfSource struct {
	Reported  int64 `json:"reported"`
	Estimated int64 `json:"estimated"`
	None      int64 `json:"none"`
}

// UsageList is a page of GET /usage.
type UsageList struct {
	Usage         []UsageRow `json:"usage"`
	NextPageToken string     `json:"next_page_token,omitempty"`
}

// The fields by which GET /usage can group.
const (
	ByDay      = "day"
	ByUser     = "user"
	ByAgent    = "agent_id"
	ByProvider = "provider_id"
	ByModel    = "model"
)

// UsageQuery selects and groups usage.
type UsageQuery struct {
	From, To             string // days, both included; "": no bound
	User, AgentID, Model string // "": all
	ProviderID           string
	GroupBy              []string
	Limit                int
	PageToken            string
}
