package usage_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// The sizes of the test. LOQUAT_USAGE_REQUESTS overrides the first.
const (
	usageRequests = 120
	atOnce        = 8
	perKill       = 50 // requests between two kills, about
)

// What requests have used equals what the backend has reported, also when they were cancelled, cut or
// killed, and what is estimated is close to what the backend has done.
func TestUsageEqualsTheLedger(t *testing.T) {
	wanted := binary.Number(t, "LOQUAT_USAGE_REQUESTS", usageRequests)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	ledger := newLedger()
	backend := httptest.NewServer(ledger)
	t.Cleanup(backend.Close)
	dir := t.TempDir()
	cfg := filepath.Join(dir, "loquat.json")
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "words", "base_url": "%s/v1", "timeout": 20,
		"stream_recovery": {"mode": "aggressive", "max_retries": 1}}}, "prices": {"words": {"input": 1, "output": 10}}}`, backend.URL)
	binary.WriteFile(t, cfg, text)
	address := binary.FreeAddress(t)
	run := func() *binary.Process {
		return binary.Start(t, nil, "serve", "--config", cfg, "--listen", address, "--data", filepath.Join(dir, "data"))
	}
	server := run()
	c := binary.NewClient(t, "http://"+address)

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	jobs, ended := make(chan int), make(chan string, wanted)
	var crowd sync.WaitGroup
	for range atOnce {
		crowd.Go(func() {
			for n := range jobs {
				ended <- oneRequest(ctx, t, c, n, rand.New(rand.NewPCG(seed, uint64(n))))
			}
		})
	}
	kills := 0
	for n := range wanted {
		jobs <- n
		if n%perKill == perKill-1 {
			_ = server.Cmd.Process.Kill()
			_ = server.Cmd.Wait()
			kills++
			server = run()
		}
	}
	close(jobs)
	crowd.Wait()
	close(ended)
	check(ctx, t, "http://"+address, c, ledger, ended, kills)
}

// oneRequest sends a message in a new session, cancels the request in a quarter of the cases, and waits
// for its end. It returns the id of the request.
func oneRequest(ctx context.Context, t *testing.T, c *client.Client, n int, random *rand.Rand) string {
	id := fmt.Sprintf("case-%d", n)
	outcome := [...]string{"whole", "whole", "whole", "whole", "cut", "cut", "cancel", "whole", "cancel", "refuse"}[random.IntN(10)]
	question := fmt.Sprintf("%s %s %s", id, outcome, strings.Repeat("please ", random.IntN(60)))
	again(ctx, func() error {
		_, err := c.CreateSession(ctx, loquat.NewSession{SessionID: id})
		if loquat.CodeOf(err) == loquat.CodeConflict { // made before the server was killed
			return nil
		}
		return err
	})
	again(ctx, func() error {
		_, err := c.Send(ctx, id, loquat.Send{Content: &question, RequestID: id})
		return err
	})
	if outcome == "cancel" {
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		again(ctx, func() error {
			_, err := c.Cancel(ctx, id)
			return err
		})
	}
	for ctx.Err() == nil {
		q, err := c.Request(ctx, id)
		if err == nil && q.Status.Ended() {
			return id
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("request %s has not ended", id)
	return id
}

// again calls fn until it succeeds: the server may have been killed.
func again(ctx context.Context, fn func() error) {
	for fn() != nil && ctx.Err() == nil {
		time.Sleep(50 * time.Millisecond)
	}
}

// check compares the usage of each request with the ledger, and the sums with GET /usage.
func check(ctx context.Context, t *testing.T, url string, c *client.Client, ledger *ledger, ended <-chan string, kills int) {
	t.Helper()
	var all loquat.Usage
	var truth loquat.Tokens
	requests, lost, statuses := 0, 0, map[string]int{}
	for id := range ended {
		q, err := c.Request(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if q.Usage == nil {
			t.Fatalf("request %s (%s) has no usage", id, q.Status)
		}
		requests++
		statuses[string(q.Status)+" "+q.Usage.Source]++
		reported, unreported, last := ledger.of(id)
		killed := strings.Contains(q.Error, "stopped unexpectedly")
		if (killed || q.Status == loquat.StatusCancelled) && q.Usage.Reported != reported { // the report was under way, or died with the server
			lost++
			reported, unreported = reported.Add(minus(last)), unreported.Add(last)
		}
		if q.Usage.Reported != reported {
			t.Errorf("request %s (%s, %s): %+v reported, the ledger has %+v", id, q.Status, q.Error, q.Usage.Reported, reported)
		}
		if (q.Usage.Estimated != loquat.Tokens{}) != (unreported != loquat.Tokens{}) && !killed && q.Status != loquat.StatusCancelled {
			t.Errorf("request %s (%s): %+v estimated, the backend has done %+v without a report", id, q.Status, q.Usage.Estimated, unreported)
		}
		all, truth = all.Plus(*q.Usage), truth.Add(unreported)
	}
	t.Logf("%d requests, %d kills (%d reports lost under way): %v; reported %+v, estimated %+v of %+v", requests, kills, lost, statuses, all.Reported, all.Estimated, truth)
	// Of a short run, the few requests that were cancelled before the backend had read them are a larger part.
	allowed := max(0.05, 12/float64(requests))
	if off := float64(all.Estimated.All()-truth.All()) / float64(truth.All()); off < -allowed || off > allowed {
		t.Errorf("the estimates are off by %.1f %%", 100*off)
	}
	var list loquat.UsageList
	if err := json.Unmarshal([]byte(binary.Call(t, http.MethodGet, url+"/usage?group_by=provider_id", "")), &list); err != nil {
		t.Fatal(err)
	}
	sum := loquat.UsageRow{}
	for _, row := range list.Usage {
		sum.Requests, sum.Reported, sum.Estimated = sum.Requests+row.Requests, sum.Reported.Add(row.Reported), sum.Estimated.Add(row.Estimated)
		sum.Cost += row.Cost
	}
	if sum.Requests != int64(requests) || sum.Reported != all.Reported || sum.Estimated != all.Estimated {
		t.Errorf("GET /usage has %+v, the requests have %+v", sum, all)
	}
	total := all.Reported.Add(all.Estimated)
	if want := (float64(total.Input) + 10*float64(total.Output)) / 1e6; sum.Cost < want*0.9999 || sum.Cost > want*1.0001 {
		t.Errorf("the cost is %v, not %v", sum.Cost, want)
	}
}

func minus(t loquat.Tokens) loquat.Tokens {
	return loquat.Tokens{Input: -t.Input, Output: -t.Output}
}

// ledger is a backend that writes down what it does, and what it reports.
type ledger struct {
	mu    sync.Mutex
	calls map[string][]*call // by the id of the case
}

// call is one call of the backend. A word is a token.
type call struct {
	prompt, words int64
	reported      bool
}

func newLedger() *ledger { return &ledger{calls: map[string][]*call{}} }

// of returns what the calls of a case have used, with and without a report, and the last of the former.
func (l *ledger) of(id string) (reported, unreported, last loquat.Tokens) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls[id] {
		t := loquat.Tokens{Input: c.prompt, Output: c.words}
		if c.reported {
			reported, last = reported.Add(t), t
		} else {
			unreported = unreported.Add(t)
		}
	}
	return reported, unreported, last
}

var caseOf = regexp.MustCompile(`(case-\d+) (\w+)`)

// ServeHTTP streams 40 words of four bytes each, or what the case says.
func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	found := caseOf.FindSubmatch(body)
	if found == nil {
		http.Error(w, "no case", http.StatusBadRequest)
		return
	}
	id, outcome := string(found[1]), string(found[2])
	var in struct {
		Messages []struct{ Content string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if outcome == "refuse" {
		http.Error(w, "busy", http.StatusServiceUnavailable)
		return
	}
	c := &call{}
	for _, m := range in.Messages {
		c.prompt += 3 + int64(len(m.Content)+3)/4
	}
	l.mu.Lock()
	l.calls[id] = append(l.calls[id], c)
	cut := outcome == "cut" && len(l.calls[id]) == 1
	l.mu.Unlock()
	w.Header().Set("Content-Type", "text/event-stream")
	const words = 40
	for n := range words {
		if cut && n == words/2 {
			panic(http.ErrAbortHandler)
		}
		if _, err := io.WriteString(w, binary.SSEText(" tok")); err != nil || http.NewResponseController(w).Flush() != nil || r.Context().Err() != nil {
			return
		}
		l.mu.Lock()
		c.words++
		l.mu.Unlock()
		time.Sleep(3 * time.Millisecond)
	}
	l.mu.Lock()
	c.reported = true
	l.mu.Unlock()
	fmt.Fprintf(w, "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d}}\n\ndata: [DONE]\n\n", c.prompt, c.words)
}
