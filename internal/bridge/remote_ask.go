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

// askParams is what a bridge asks of a server.
type askParams struct {
	ID      string          `json:"id"`
	Path    string          `json:"path,omitempty"`
	Token   string          `json:"token,omitempty"`
	Address netip.Addr      `json:"address,omitzero"`
	SinceID loquat.EventID  `json:"since_id,omitempty"`
	UntilID loquat.EventID  `json:"until_id,omitempty"`
	Body    json.RawMessage `json:"body,omitempty"`
}

// doneParams is the end of an answer.
type doneParams struct {
	ID string `json:"id"`
	Answer
	Error loquat.Code `json:"error,omitempty"`
}

// get is a Get.
func (r *remote) get(ctx context.Context, token, path string, from netip.Addr, take func(Part) error) (Answer, error) {
	return r.ask(ctx, eventGet, askParams{Path: path, Token: token, Address: from}, take)
}

// asked is an answer that the server is asked for.
type asked struct {
	parts chan takenPart
	end   chan doneParams
}

type takenPart struct {
	part Part
	in   phx.Incoming
}

// ask asks the server for something and takes the answer.
func (r *remote) ask(ctx context.Context, event string, params askParams, take func(Part) error) (Answer, error) {
	q := &asked{parts: make(chan takenPart, 1), end: make(chan doneParams, 1)}
	r.mu.Lock()
	server := r.joined
	if server == nil || len(r.asked) >= maxAsking {
		r.mu.Unlock()
		return Answer{}, errAway
	}
	r.lastAsk++
	params.ID = strconv.Itoa(r.lastAsk)
	r.asked[params.ID] = q
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		delete(r.asked, params.ID)
		r.mu.Unlock()
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(server.member.Context(), cancel)() // it is away
	if err := server.push(ctx, event, params); err != nil {
		return Answer{}, errAway
	}
	answer, err := q.wait(ctx, take)
	if err != nil {
		_ = server.push(server.member.Context(), eventCancel, askParams{ID: params.ID})
	}
	if ctx.Err() != nil && server.member.Context().Err() != nil {
		return Answer{}, errAway
	}
	return answer, err
}

func (c *serverChannel) push(ctx context.Context, event string, params askParams) error {
	payload, err := json.Marshal(params)
	if err != nil {
		return err
	}
	return c.member.Send(ctx, phx.NewPush(c.member.Topic(), event, payload))
}

// wait hands on the parts of the answer until its end.
func (q *asked) wait(ctx context.Context, take func(Part) error) (Answer, error) {
	silence := time.NewTimer(askWithin)
	defer silence.Stop()
	for {
		select {
		case p := <-q.parts:
			if err := take(p.part); err != nil {
				_ = p.in.Refuse(ctx, "gone")
				return Answer{}, err
			}
			if err := p.in.Reply(ctx, phx.StatusOK, nil); err != nil {
				return Answer{}, errAway
			}
		case end := <-q.end:
			if end.Error != "" {
				return Answer{}, loquat.Errorf(end.Error, "the server says %s", end.Error)
			}
			return end.Answer, nil
		case <-silence.C:
			return Answer{}, errAway
		case <-ctx.Done():
			return Answer{}, ctx.Err()
		}
		silence.Reset(askWithin)
	}
}

// part hands on a part of an answer; false is that nobody waits for it.
func (r *remote) part(in phx.Incoming) bool {
	var params partParams
	if json.Unmarshal(in.Payload, &params) != nil {
		return false
	}
	r.mu.Lock()
	q := r.asked[params.ID]
	r.mu.Unlock()
	if q == nil {
		return false
	}
	select {
	case q.parts <- takenPart{params.Part, in}:
		return true
	default: // it did not wait for the reply to the one before
		return false
	}
}

func (r *remote) done(payload json.RawMessage) {
	var params doneParams
	if json.Unmarshal(payload, &params) != nil {
		return
	}
	r.mu.Lock()
	q := r.asked[params.ID]
	r.mu.Unlock()
	if q == nil {
		return
	}
	select {
	case q.end <- params:
	default:
	}
}
