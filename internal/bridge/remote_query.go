package bridge

import (
	"context"
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	"loquat"
	"loquat/internal/phx"
)

// askParams are the parameters of a query of the bridge.
type askParams struct {
	ID      string          `json:"id"`
	Path    string          `json:"path,omitempty"`
	Token   string          `json:"token,omitempty"`
	Address netip.Addr      `json:"address,omitzero"`
	SinceID loquat.EventID  `json:"since_id,omitempty"`
	UntilID loquat.EventID  `json:"until_id,omitempty"`
	Users   bool            `json:"users,omitempty"` // the events with their users
	User    string          `json:"user,omitempty"`  // only events of this user's sessions are needed
	Body    json.RawMessage `json:"body,omitempty"`
}

// doneParams ends an answer.
type doneParams struct {
	ID string `json:"id"`
	Answer
	Error loquat.Code `json:"error,omitempty"`
}

// get implements Get for the remote server.
func (r *remote) get(ctx context.Context, token, path string, from netip.Addr, take func(Part) error) (Answer, error) {
	return r.ask(ctx, eventGet, askParams{Path: path, Token: token, Address: from}, take)
}

// query is a query that the server has not finished answering.
type query struct {
	parts chan incomingPart
	end   chan doneParams
}

type incomingPart struct {
	part Part
	in   phx.Incoming
}

// ask sends a query to the server and passes the parts of the answer to take. Reads of apps are refused
// while too many run. All other queries are short, and wait for their turn.
func (r *remote) ask(ctx context.Context, event string, params askParams, take func(Part) error) (Answer, error) {
	if event == eventGet {
		select {
		case r.gets <- struct{}{}:
			defer func() { <-r.gets }()
		default:
			return Answer{}, errBusy
		}
	}
	turn := time.NewTimer(askWithin)
	defer turn.Stop()
	select {
	case r.asking <- struct{}{}:
		defer func() { <-r.asking }()
	case <-turn.C:
		return Answer{}, errDisconnected
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	q := &query{parts: make(chan incomingPart, 1), end: make(chan doneParams, 1)}
	r.mu.Lock()
	server := r.joined
	if server == nil {
		r.mu.Unlock()
		return Answer{}, errDisconnected
	}
	r.lastAsk++
	params.ID = strconv.Itoa(r.lastAsk)
	r.query[params.ID] = q
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.query, params.ID)
		r.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(server.member.Context(), cancel)() // the server disconnected
	if err := server.push(ctx, event, params); err != nil {
		return Answer{}, errDisconnected
	}
	silence := askWithin
	if event == eventGet {
		silence = getWithin
	}
	answer, err := q.wait(ctx, silence, take)
	if err != nil {
		_ = server.push(server.member.Context(), eventCancel, askParams{ID: params.ID})
	}
	if ctx.Err() != nil && server.member.Context().Err() != nil {
		return Answer{}, errDisconnected
	}
	if passedOn := event == eventGet || event == eventClaim; err == nil && passedOn && (answer.Status < 200 || answer.Status > 599) {
		return Answer{}, errBadStatus
	}
	return answer, err
}

// errBadStatus reports an answer that cannot be passed on. net/http panics for such a status.
var errBadStatus = loquat.Errorf(loquat.CodeUnavailable, "the server's answer has no valid status")

func (c *serverChannel) push(ctx context.Context, event string, params askParams) error {
	payload, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return c.member.Send(ctx, phx.NewPush(c.member.Topic(), event, payload))
}

// wait passes the parts of the answer to take, until the answer ends. It fails once the server is silent for too long.
func (q *query) wait(ctx context.Context, within time.Duration, take func(Part) error) (Answer, error) {
	silence := time.NewTimer(within)
	defer silence.Stop()
	for {
		select {
		case p := <-q.parts:
			if err := take(p.part); err != nil {
				_ = p.in.Refuse(ctx, "gone")
				return Answer{}, err
			}
			if err := p.in.Reply(ctx, phx.StatusOK, nil); err != nil {
				return Answer{}, errDisconnected
			}
		case end := <-q.end:
			if end.Error != "" {
				return Answer{}, loquat.Errorf(end.Error, "the server answers %s", end.Error)
			}
			return end.Answer, nil
		case <-silence.C:
			return Answer{}, errDisconnected
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
		silence.Reset(within)
	}
}

// part passes a part on to its query. It returns false if the query has ended.
func (r *remote) part(in phx.Incoming) bool {
	var params partParams
	if json.Unmarshal(in.Payload, &params) != nil {
		return false
	}
	r.mu.Lock()
	q := r.query[params.ID]
	r.mu.Unlock()
	if q == nil {
		return false
	}
	select {
	case q.parts <- incomingPart{params.Part, in}:
		return true
	default: // the server did not wait for the reply to the previous part
		return false
	}
}

func (r *remote) done(payload json.RawMessage) {
	var params doneParams
	if json.Unmarshal(payload, &params) != nil {
		return
	}
	r.mu.Lock()
	q := r.query[params.ID]
	r.mu.Unlock()
	if q == nil {
		return
	}
	select {
	case q.end <- params:
	default:
	}
}
