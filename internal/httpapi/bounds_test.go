package httpapi_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/builtin"
)

// as makes a token and returns its header.
func (r *rig) as(t loquat.NewToken) string {
	r.t.Helper()
	t.Name = "test"
	_, secret, err := r.keeper.MakeToken(r.t.Context(), t)
	if err != nil {
		r.t.Fatal(err)
	}
	return "Authorization: Bearer " + secret
}

// wantBound requires that an answer is a 429 of a bound that says when to try again.
func (g reply) wantBound(t *testing.T, bound string) int {
	t.Helper()
	p := g.wantProblem(t, 429, loquat.CodeRateLimited)
	after, err := strconv.Atoi(g.Header.Get("Retry-After"))
	if p.Bound != bound || err != nil || after < 1 || !strings.Contains(p.Detail, bound) {
		t.Errorf("%s: bound %q, Retry-After %q: %s", bound, p.Bound, g.Header.Get("Retry-After"), p.Detail)
	}
	return after
}

// Bounds count for a user over all tokens, and for a token without a user alone.
func TestBounds(t *testing.T) {
	r := newRig(t, builtin.Attachments{})
	_ = r.asFull()
	token := func(user, role string) string { return r.as(loquat.NewToken{Scope: auth.User, User: user, Role: role}) }

	few, again, bob := token("ann", "few"), token("ann", "few"), token("bob", "few")
	r.do("POST", "/sessions", `{"session_id":"a1"}`, few, "Idempotency-Key: one").want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"a2"}`, again).want(t, 201)
	r.do("POST", "/sessions", `{"session_id":"a3"}`, few).wantBound(t, "sessions")
	r.do("POST", "/sessions/a1/fork", `{}`, again).wantBound(t, "sessions")
	r.do("POST", "/sessions", `{"session_id":"a1"}`, few, "Idempotency-Key: one").want(t, 201) // a repeat adds nothing
	r.do("POST", "/sessions", `{"session_id":"b1"}`, bob).want(t, 201)

	r.do("POST", "/sessions/a1/send", `{"content":"x","request_id":"q1"}`, few).want(t, 202)
	r.do("POST", "/sessions/a1/send", `{"content":"x","request_id":"q1"}`, again).want(t, 202) // a repeat
	r.do("POST", "/sessions/a2/send", `{"content":"x"}`, again).wantBound(t, "running_requests")
	r.do("POST", "/sessions/a1/send", `{"content":"x","on_busy":"queue"}`, few).wantBound(t, "running_requests")
	r.do("POST", "/sessions/a2/send", `{"content":"x","on_busy":"interrupt"}`, few).wantBound(t, "running_requests") // there is nothing to interrupt
	r.do("POST", "/sessions/a1/send", `{"content":"y","on_busy":"interrupt","request_id":"q0"}`, few).want(t, 202)
	r.do("POST", "/sessions/b1/send", `{"content":"x","request_id":"q2"}`, bob).want(t, 202)
	close(r.parrot.gate)
	r.do("GET", "/events?request_id=q1&wait=10", "", few).want(t, 200)
	r.await(t, "q1", few)
	r.await(t, "q0", few)
	r.do("POST", "/sessions/a2/send", `{"content":"x","request_id":"q3"}`, again).want(t, 202)
	r.await(t, "q3", few)
	r.do("DELETE", "/sessions/a2", "", few).want(t, 204)
	r.do("POST", "/sessions", `{"session_id":"a3"}`, few).want(t, 201)

	slow, tool := token("carl", "slow"), r.as(loquat.NewToken{Role: "slow"})
	for _, as := range []string{slow, tool} {
		id := "s" + strconv.Itoa(len(as)) + as[len(as)-4:]
		r.do("POST", "/sessions", `{"session_id":"`+id+`"}`, as).want(t, 201)
		for n := range 2 {
			r.do("POST", "/sessions/"+id+"/send", `{"content":"x","request_id":"`+id+strconv.Itoa(n)+`"}`, as).want(t, 202)
			r.await(t, id+strconv.Itoa(n), as)
		}
		if after := r.do("POST", "/sessions/"+id+"/send", `{"content":"x"}`, as).wantBound(t, "requests_per_minute"); after < 50 || after > 61 {
			t.Errorf("Retry-After %d", after)
		}
	}

	brief := token("dora", "brief")
	r.do("POST", "/sessions", `{"session_id":"d"}`, brief).want(t, 201)
	r.do("POST", "/sessions/d/send", `{"content":"x","request_id":"d1"}`, brief).want(t, 202)
	q := r.await(t, "d1", brief)
	if q.Usage == nil || q.Usage.Source != loquat.UsageEstimated || q.Usage.Estimated != (loquat.Tokens{Input: 4, Output: 4}) {
		t.Errorf("d1 used %+v", q.Usage)
	}
	r.do("POST", "/sessions/d/send", `{"content":"x","request_id":"d2"}`, brief).want(t, 202)
	r.await(t, "d2", brief)
	r.do("POST", "/sessions/d/send", `{"content":"x"}`, brief).wantBound(t, "tokens_per_day")

	small := token("eve", "small")
	r.do("POST", "/sessions", `{"session_id":"e","messages":[{"role":"user","content":"`+strings.Repeat("x", 60)+`"}]}`, small).want(t, 201)
	r.do("POST", "/sessions/e/send", `{"content":"x"}`, small).wantBound(t, "storage_bytes")
	r.do("POST", "/sessions/e/messages", `{"role":"user","content":"x"}`, small).wantBound(t, "storage_bytes")
	r.do("POST", "/sessions", `{}`, small).wantBound(t, "storage_bytes")
	const image = `{"params":{"data_url":"data:image/gif;base64,R0lGODlhAQABAAAAACw="}}`
	r.do("POST", "/sessions/e/actions/store_attachment", image, small).wantBound(t, "storage_bytes")
	r.do("DELETE", "/sessions/e/messages", `{"indices":[0]}`, small).want(t, 200)
	r.do("POST", "/sessions/e/messages", `{"role":"user","content":"x"}`, small).want(t, 201)
}

// A request that reaches the bound in the middle of a reply ends, and its text stays.
func TestBoundInAReply(t *testing.T) {
	r := newRig(t)
	_ = r.asFull()
	ann := r.as(loquat.NewToken{Scope: auth.User, User: "ann", Role: "tiny"})
	r.do("POST", "/sessions", `{"session_id":"s","send":{"content":"x","request_id":"q"}}`, ann).want(t, 201)
	r.parrot.gate <- struct{}{} // "Pieces ", which is two tokens
	q := r.await(t, "q", ann)
	if q.Status != loquat.StatusFailed || !strings.Contains(q.Error, "tokens_per_day") || q.Usage == nil || q.Usage.Source != loquat.UsageEstimated {
		t.Errorf("the request is %+v, it used %+v", q, q.Usage)
	}
	var s loquat.Snapshot
	r.do("GET", "/sessions/s", "", ann).want(t, 200).into(t, &s)
	if last := s.Messages[len(s.Messages)-1]; last.Content != "Pieces " || last.Metadata.String(loquat.MetaIncomplete) != "error" {
		t.Errorf("kept is %+v", last)
	}
	r.do("POST", "/sessions/s/send", `{"content":"x"}`, ann).wantBound(t, "tokens_per_day")
}

// A role says which agents, models and plugins may be used.
func TestRoles(t *testing.T) {
	r := newRig(t)
	full := r.asFull()
	close(r.parrot.gate)
	token := func(role string) string { return r.as(loquat.NewToken{Scope: auth.User, User: "ann", Role: role}) }
	r.do("POST", "/tokens", `{"name":"x","scope":"user","user":"ann","role":"nothing"}`, full).wantProblem(t, 422, loquat.CodeInvalid)
	r.do("POST", "/pairing", `{"scope":"read","role":"nothing"}`, full).wantProblem(t, 422, loquat.CodeInvalid)

	narrow, other, main := token("narrow"), token("other"), token("main")
	r.do("POST", "/pairing", `{"role":"other"}`, narrow).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/sessions", `{}`, narrow).wantProblem(t, 403, loquat.CodeForbidden)
	if got := r.do("GET", "/agents", "", narrow).want(t, 200).body; !strings.Contains(string(got), `"agents":[]`) {
		t.Errorf("agents: %s", got)
	}
	if got := r.do("GET", "/agents", "", main).want(t, 200).body; !strings.Contains(string(got), `"default"`) {
		t.Errorf("agents: %s", got)
	}
	r.do("GET", "/models", "", narrow).wantProblem(t, 403, loquat.CodeForbidden)
	if got := r.do("GET", "/models", "", other).want(t, 200).body; !strings.Contains(string(got), `"models":[]`) {
		t.Errorf("models: %s", got)
	}
	if got := r.do("GET", "/models", "", main).want(t, 200).body; !strings.Contains(string(got), `"m1"`) {
		t.Errorf("models: %s", got)
	}
	r.do("POST", "/sessions", `{"session_id":"s"}`, main).want(t, 201)
	r.do("POST", "/sessions/s/send", `{"content":"x"}`, other).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/sessions/s/fork", `{}`, narrow).wantProblem(t, 403, loquat.CodeForbidden)
	r.do("POST", "/sessions/s/send", `{"content":"x","request_id":"q"}`, main).want(t, 202)
	if q := r.await(t, "q", main); q.Status != loquat.StatusCompleted {
		t.Errorf("q is %+v", q)
	}
}

// await waits for the end of a request.
func (r *rig) await(t *testing.T, id, as string) loquat.Request {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		var q loquat.Request
		r.do("GET", "/requests/"+id, "", as).want(t, 200).into(t, &q)
		if q.Status.Ended() {
			return q
		}
	}
	t.Fatalf("request %s does not end", id)
	return loquat.Request{}
}
