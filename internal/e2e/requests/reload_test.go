package requests_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// reloads is a server whose configuration file the test changes.
type reloads struct {
	t       *testing.T
	file    string
	process *binary.Process
	api     *client.Client
	random  *rand.Rand

	config map[string]any // as the server has to use it
	audits int            // changes that the audit has to have
}

const (
	reloadStreams = 200
	reloadRounds  = 100
	reloadPause   = 100 * time.Millisecond
	reloadSecret  = "canary-of-a-secret-that-nobody-may-see"
)

// A reload cuts no stream and changes no running reply, and a file that cannot be used changes nothing.
func TestReload(t *testing.T) {
	const chunks, perSecond = 200, 10
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(fmt.Sprintf(`{"text": %q, "chunks": %d, "rate": %d}`, strings.Repeat("w", chunks), chunks, perSecond))})
	r := startReloads(t, scripted+"/v1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var streams sync.WaitGroup
	for i := range reloadStreams {
		streams.Go(func() {
			if err := r.follow(ctx, fmt.Sprintf("session-%d", i), strings.Repeat("w", chunks)); err != nil {
				t.Errorf("stream %d: %v", i, err)
			}
		})
	}
	for i := range reloadRounds {
		time.Sleep(reloadPause) // so that they are spread over the replies
		r.round(ctx, i)
	}
	streams.Wait()
	r.checkAudit(ctx)
	if strings.Contains(r.process.Log.String(), reloadSecret) {
		t.Error("a secret is in the log")
	}
}

func startReloads(t *testing.T, backendURL string) *reloads {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := &reloads{t: t, file: filepath.Join(t.TempDir(), "loquat.json"), random: rand.New(rand.NewPCG(seed, 0)), config: map[string]any{
		"providers": map[string]any{"main": map[string]any{"provider": "reference_generic_compatible", "model": "demo", "base_url": backendURL, "api_key": reloadSecret + "-first"}},
		"agents":    map[string]any{"default": map[string]any{"provider": "main"}},
		"server":    map[string]any{"auth_tokens": []any{map[string]any{"name": "test", "token": "the token of the test, " + reloadSecret, "scope": "full"}}},
		"limits":    map[string]any{"max_followers_per_token": 1000},
	}}
	r.write(string(binary.MustJSON(t, r.config)))
	r.process = binary.Start(t, nil, "serve", "--config", r.file, "--listen", "127.0.0.1:0", "--data", t.TempDir())
	var err error
	if r.api, err = client.New(r.process.URL, client.Options{Token: "the token of the test, " + reloadSecret}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.api.CloseIdleConnections)
	return r
}

func (r *reloads) write(text string) {
	r.t.Helper()
	binary.WriteFile(r.t, r.file, text)
}

// follow sends a message and reads its events from a single connection, up to the end of the request.
func (r *reloads) follow(ctx context.Context, sessionID, want string) error {
	if _, err := r.api.CreateSession(ctx, loquat.NewSession{SessionID: sessionID}); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.process.URL+"/events/stream?omit_session=true&since_id=0000000000000000&session_id="+sessionID, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer the token of the test, "+reloadSecret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text := "hello"
	if _, err := r.api.Send(ctx, sessionID, loquat.Send{Content: &text}); err != nil {
		return err
	}
	got := ""
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var e loquat.Event
		if err := json.Unmarshal([]byte(data), &e); err != nil {
			return err
		}
		switch e.Type {
		case loquat.Partial:
			got += e.Message.Content
		case loquat.Final:
			got = e.Messages[0].Content // a follower that is behind gets no increments after the end
		case loquat.ErrorEvent:
			return fmt.Errorf("the request failed: %s", e.Detail)
		case loquat.RequestCompleted:
			if got != want {
				return fmt.Errorf("the reply has %d bytes, want %d", len(got), len(want))
			}
			return nil
		}
	}
	return fmt.Errorf("it was cut after %d bytes: %v", len(got), lines.Err())
}

// round changes the file, reloads it, and checks what the server uses then.
func (r *reloads) round(ctx context.Context, n int) {
	r.t.Helper()
	before := string(binary.MustJSON(r.t, r.config))
	if r.random.IntN(3) == 0 {
		r.refused(ctx, before)
		return
	}
	changed, restart := r.mutate(n)
	r.write(string(binary.MustJSON(r.t, r.config)))
	if n%5 == 0 {
		r.signal(ctx, changed, restart)
	} else {
		done, err := r.api.ReloadConfig(ctx)
		if err != nil {
			r.t.Fatalf("round %d: %v\nthe file: %s", n, err, string(binary.MustJSON(r.t, r.config)))
		}
		found := slices.ContainsFunc(done.Changed, func(c loquat.ConfigChange) bool { return c.Key == changed && c.Restart == restart })
		if changed != "" && !found {
			r.t.Fatalf("round %d: %s is not among the changes %v", n, changed, done.Changed)
		}
	}
	if changed != "" {
		r.audits++
	}
	r.checkAgents(ctx)
}

// refused reloads a file that cannot be used.
func (r *reloads) refused(ctx context.Context, usable string) {
	r.t.Helper()
	bad := []string{
		usable[:len(usable)/2],
		``,
		`[]`,
		strings.Replace(usable, `"provider":"reference_generic_compatible"`, `"provider":7`, 1),
		strings.Replace(usable, `"provider":"main"`, `"provider":"nobody"`, 1),
		strings.Replace(usable, `"scope":"full"`, `"scope":"fool"`, 1),
		strings.Replace(usable, `"scope":"full"`, `"scope":"full","role":"absent"`, 1),
		strings.Replace(usable, reloadSecret+"-", `${NOT_SET_ANYWHERE}`, 1),
		strings.Replace(usable, `"limits":{`, `"limits":{"max_body_bytes":-1,`, 1),
		strings.Replace(usable, `{`, `{"server":{},`, 1),
		strings.Replace(usable, `{`, `{"plugins":["no.such.plugin"],`, 1),
	}
	i := r.random.IntN(len(bad))
	if bad[i] == usable {
		r.t.Fatalf("file %d is usable", i)
	}
	r.write(bad[i])
	_, err := r.api.ReloadConfig(ctx)
	e, ok := err.(*loquat.Error)
	if !ok || e.Code != loquat.CodeInvalid || len(e.Fields) == 0 {
		r.t.Fatalf("file %d was not refused with its faults: %v", i, err)
	}
	if text := fmt.Sprint(e.Fields); strings.Contains(text, reloadSecret) {
		r.t.Errorf("file %d: a secret is in the faults: %s", i, text)
	}
	r.checkAgents(ctx)
}

// mutate changes a key of the configuration. It returns the key, "" if nothing has changed.
func (r *reloads) mutate(n int) (key string, restart bool) {
	agents, limits := r.config["agents"].(map[string]any), r.config["limits"].(map[string]any)
	main, server := r.config["providers"].(map[string]any)["main"].(map[string]any), r.config["server"].(map[string]any)
	tokens := server["auth_tokens"].([]any)
	id := fmt.Sprintf("agent-%d", r.random.IntN(5))
	switch r.random.IntN(9) {
	case 0:
		main["model"], key = fmt.Sprint("demo-", n), "providers.main.model"
	case 1:
		main["api_key"], key = fmt.Sprintf("%s-%d", reloadSecret, n), "providers.main.api_key"
	case 2:
		if _, ok := agents[id]; ok {
			delete(agents, id)
			return "", false // its keys are named one by one
		}
		agents[id], key = map[string]any{"provider": "main"}, "agents."+id+".provider"
	case 3:
		limits["max_tool_rounds"], key = n, "limits.max_tool_rounds"
	case 4:
		limits["max_connections"], key, restart = 2000+n, "limits.max_connections", true
	case 5:
		first := []any{map[string]any{"name": fmt.Sprint("guest-", n), "token": fmt.Sprintf("a guest's token, %s-%d", reloadSecret, n), "scope": "read"}}
		server["auth_tokens"], key = append(first, tokens[len(tokens)-1]), "server.auth_tokens" // the one of the test moves
	case 6:
		server["allowed_origins"], key = []any{fmt.Sprintf("https://host-%d.example", n)}, "server.allowed_origins"
	case 7:
		r.config["prices"], key = map[string]any{"demo": map[string]any{"input": n, "output": n + 1}}, "prices.demo.output"
	default:
		r.config["events"], key = map[string]any{"retention_seconds": 100_000 + n}, "events.retention_seconds"
	}
	return key, restart
}

// signal reloads by a signal, and waits until the server has read the file.
func (r *reloads) signal(ctx context.Context, key string, restart bool) {
	r.t.Helper()
	before := strings.Count(r.process.Log.String(), "the configuration was reloaded")
	if err := r.process.Cmd.Process.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
	binary.Eventually(r.t, "the reload", func() bool {
		return strings.Count(r.process.Log.String(), "the configuration was reloaded") > before
	})
	if done, err := r.api.ReloadConfig(ctx); err != nil || slices.ContainsFunc(done.Changed, func(c loquat.ConfigChange) bool { return c.Key == key && !restart }) {
		r.t.Fatalf("%s still differs after the signal: %v, %v", key, done, err)
	}
}

// checkAgents compares the agents and their models with the configuration.
func (r *reloads) checkAgents(ctx context.Context) {
	r.t.Helper()
	got, err := r.api.Agents(ctx)
	if err != nil {
		r.t.Fatal(err)
	}
	agents := r.config["agents"].(map[string]any)
	model := r.config["providers"].(map[string]any)["main"].(map[string]any)["model"]
	for _, a := range got {
		if _, ok := agents[a.AgentID]; !ok || a.Model != model {
			r.t.Fatalf("the server has %+v; the agents are %v, the model is %s", a, agents, model)
		}
	}
	if len(got) != len(agents) {
		r.t.Fatalf("the server has %v; the agents are %v", got, agents)
	}
}

// checkAudit checks that every change is in the audit, and no secret.
func (r *reloads) checkAudit(ctx context.Context) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.process.URL+"/audit?action=config_changed&limit=1000", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer the token of the test, "+reloadSecret)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	_, body := binary.AnswerOf(r.t, resp)
	var list loquat.AuditList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		r.t.Fatal(err)
	}
	if len(list.Audit) < r.audits || strings.Contains(body, reloadSecret) {
		r.t.Errorf("the audit has %d entries of at least %d; a secret: %v", len(list.Audit), r.audits, strings.Contains(body, reloadSecret))
	}
	kinds := map[string]int{}
	for _, e := range list.Audit {
		kinds[e.Actor.Kind+" "+e.Actor.Name]++
	}
	if kinds["token test"] == 0 || kinds[loquat.ActorConfiguration+" SIGHUP"] == 0 {
		r.t.Errorf("the changes were made by %v", kinds)
	}
	r.t.Logf("%d changes in the audit, by %v", len(list.Audit), kinds)
}
