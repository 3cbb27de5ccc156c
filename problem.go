package loquat

// Problem is the body of every failing answer, as RFC 9457 has it. Code is stable,
// the texts are not.
type Problem struct {
	Type      string       `json:"type" doc:"Always about:blank: the code tells failures apart."`
	Title     string       `json:"title" doc:"The meaning of the status."`
	Status    int          `json:"status" doc:"The HTTP status."`
	Detail    string       `json:"detail" doc:"What went wrong this time, and what to do."`
	Code      Code         `json:"code" doc:"The stable name of the failure."`
	Errors    []FieldError `json:"errors,omitempty" doc:"The faults of the input, all at once."`
	RequestID string       `json:"request_id,omitempty" doc:"With code busy: the request that is in the way."`
	Bound     string       `json:"bound,omitempty" doc:"With code rate_limited: the bound of the caller's role that was reached, such as tokens_per_day."`
}
