package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/phx"
)

// pushMessages is the number of messages to append.
const pushMessages = 200

// pushDelays measures, with the real program, how long after a local client an app receives
// an event: with the bridge in the server, and with a separate bridge.
func pushDelays() (serve, alone time.Duration, err error) {
	p, err := buildProgram()
	if err != nil {
		return 0, 0, err
	}
	defer p.remove()
	const provider = `"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1"}}`
	const tokens = `"server": {"auth_tokens": [{"name": "all", "token": "bench-token", "scope": "full"}]}`
	server, err := p.serve(fmt.Sprintf(`{%s, %s, "bridge": {"server_id": "home"}}`, provider, tokens), "own")
	if err != nil {
		return 0, 0, err
	}
	serve, err = pushDelay(server.url, server.url)
	server.stop()
	if err != nil {
		return 0, 0, err
	}
	file := filepath.Join(p.dir, "bridge.json")
	if err := os.WriteFile(file, []byte(`{"bridge": {"servers": {"home": "bench-server"}}}`), 0o600); err != nil {
		return 0, 0, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, 0, err
	}
	address := ln.Addr().String()
	ln.Close()
	apart, err := p.start("bridge", "--config", file, "--listen", address)
	if err != nil {
		return 0, 0, err
	}
	defer apart.stop()
	server, err = p.serve(fmt.Sprintf(`{%s, %s, "bridge": {"url": "ws://%s/bridge", "server_id": "home", "token": "bench-server"}}`, provider, tokens, address), "forwards")
	if err != nil {
		return 0, 0, err
	}
	defer server.stop()
	alone, err = pushDelay(server.url, apart.url)
	return serve, alone, err
}

// pushDelay follows a server by Server-Sent Events and by push at the same time. It returns
// the median delay of the pushed events.
func pushDelay(server, at string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	api, err := client.New(server, client.Options{Token: "bench-token"})
	if err != nil {
		return 0, err
	}
	local, pushed := arrivals{}, arrivals{}
	app, err := phx.Dial(ctx, "ws"+strings.TrimPrefix(at, "http")+"/bridge", phx.ClientOptions{FrameBytes: 64 << 20, OnPush: func(_, _ string, payload json.RawMessage) {
		now := time.Now()
		var body struct {
			Event struct {
				EventID loquat.EventID `json:"event_id"`
			} `json:"event"`
		}
		if json.Unmarshal(payload, &body) == nil {
			pushed.add(body.Event.EventID, now)
		}
	}})
	if err != nil {
		return 0, err
	}
	defer app.Close()
	if _, err := app.Join(ctx, "events:server:home", map[string]string{"token": "bench-token", "session": "omit"}); err != nil {
		return 0, err
	}
	session, err := api.CreateSession(ctx, loquat.NewSession{})
	if err != nil {
		return 0, err
	}
	var since loquat.EventID
	follow, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e, err := range api.Follow(follow, client.Query{Since: &since, OmitSession: true}) {
			if err != nil {
				return
			}
			local.add(e.EventID, time.Now())
		}
	}()
	for range pushMessages {
		if _, err := api.AppendMessage(ctx, session.SessionID, loquat.NewMessage{Role: "user", Content: "hello"}); err != nil {
			stop()
			return 0, err
		}
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(200 * time.Millisecond)
	stop()
	<-done
	return medianDelay(&local, &pushed)
}

// arrivals holds when events arrived.
type arrivals struct {
	mu sync.Mutex
	at map[loquat.EventID]time.Time // guarded by mu
}

func (a *arrivals) add(id loquat.EventID, at time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.at == nil {
		a.at = map[loquat.EventID]time.Time{}
	}
	a.at[id] = at
}

// medianDelay returns how much later than local events the same events were pushed.
func medianDelay(local, pushed *arrivals) (time.Duration, error) {
	local.mu.Lock()
	defer local.mu.Unlock()
	pushed.mu.Lock()
	defer pushed.mu.Unlock()
	var later []time.Duration
	for id, at := range pushed.at {
		if first, ok := local.at[id]; ok {
			later = append(later, at.Sub(first))
		}
	}
	if len(later) < pushMessages {
		return 0, fmt.Errorf("only %d events were received by both", len(later))
	}
	slices.Sort(later)
	return later[len(later)/2], nil
}
