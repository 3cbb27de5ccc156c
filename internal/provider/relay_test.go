package provider_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"loquat"
	"loquat/internal/provider"
	"loquat/internal/provider/providertest"
)

// relayed receives an answer.
type relayed struct {
	status int
	length int
	body   bytes.Buffer
	writes []string
	header http.Header
	full   error // what Write answers
}

func (r *relayed) Begin(status int, header http.Header, length int) {
	if r.status != 0 {
		panic("Begin was called twice")
	}
	r.status, r.header, r.length = status, header, length
}

func (r *relayed) Write(b []byte) (int, error) {
	if r.status == 0 {
		panic("Write was called before Begin")
	}
	r.body.Write(b)
	r.writes = append(r.writes, string(b))
	return len(b), r.full
}

func relay(ctx context.Context, s *script, config loquat.Object, stream bool, choices int) (*relayed, error) {
	out := &relayed{}
	err := provider.New(provider.Options{Transport: s}).Relay(ctx, loquat.RelayRequest{
		ProviderID: "main", Config: config, Body: [][]byte{[]byte(`{"a":`), []byte(`1}`)}, Stream: stream, Choices: choices, Answer: out,
	})
	return out, err
}

// Of each fault: whether it is met before a stream began, whether comments come before it, and whether
// content does.
type fault struct {
	list            string // of delays, "" if there is none
	took            time.Duration
	breaks          bool // it is the end of a stream that had begun
	comment, quiet  bool
	content, refuse bool
	retryAfter      time.Duration
	step            step
}

const (
	ping  = ": ping\n\n"
	role  = "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
	think = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"hm\"}}]}\n\n"
)

func randomFault(rng *rand.Rand) fault {
	status := func(n int) fault {
		return fault{list: strconv.Itoa(n), step: step{status: n, body: `{"error":{"message":"no"}}`}}
	}
	switch rng.IntN(12) {
	case 0:
		f := status(429)
		if rng.IntN(2) == 0 {
			f.retryAfter = time.Duration(rng.IntN(60)) * time.Second
			f.step.header = http.Header{"Retry-After": {strconv.Itoa(int(f.retryAfter.Seconds()))}}
		}
		return f
	case 1:
		return status(500)
	case 2:
		return status(503)
	case 3:
		return status(404)
	case 4:
		return fault{list: "timeout", took: 10 * time.Second, step: step{hang: true}}
	case 5:
		return fault{list: "timeout", took: 10 * time.Second, step: step{stall: true}}
	case 6:
		return fault{refuse: true, step: step{refuse: errors.New("connection refused")}}
	case 7:
		return fault{breaks: true, comment: true, step: step{body: ping, cut: errReset}}
	case 8:
		return fault{breaks: true, quiet: true, step: step{body: role, cut: errReset}}
	case 9:
		return fault{breaks: true, content: true, step: step{body: role + says("dead"), cut: errReset}}
	case 10:
		return fault{breaks: true, content: true, step: step{body: think + `data: {"choices":[{"del`}}
	}
	return fault{breaks: true, took: 10 * time.Second, comment: true, step: step{body: ping, stall: true}}
}

// The faults of the retry tables in random order give the delays and ends of a model of the rules:
// one counter for statuses and timeouts, one for recoveries, and no recovery once the caller has
// anything but comments.
func TestRelayRules(t *testing.T) {
	sequences := 10_000
	if testing.Short() {
		sequences = 500
	}
	const inOneBubble = 100
	for from := 0; from < sequences; from += inOneBubble {
		synctest.Test(t, func(t *testing.T) {
			for i := from; i < from+inOneBubble; i++ {
				checkRelayRules(t, rand.New(rand.NewPCG(16, uint64(i))), i)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func checkRelayRules(t *testing.T, rng *rand.Rand, seed int) {
	lists := map[string][]int{}
	for _, name := range []string{"429", "500", "503", "timeout"} {
		for range rng.IntN(5) {
			lists[name] = append(lists[name], rng.IntN(50))
		}
	}
	mode := []string{"disabled", "early_only", "aggressive"}[rng.IntN(3)]
	most, interval, stream := rng.IntN(4), rng.IntN(2)*7, rng.IntN(4) > 0
	faults := make([]fault, rng.IntN(7))
	steps := make([]step, 0, len(faults)+1)
	for i := range faults {
		faults[i] = randomFault(rng)
		steps = append(steps, faults[i].step)
	}
	answer := hello
	if stream {
		answer = ping + role + says("hello") + done
	}
	steps = append(steps, step{body: answer, chunk: rng.IntN(40)})
	config := retryConfig(func(c loquat.Object) {
		c.Set("rate_limit_retry_delays_seconds", orEmpty(lists["429"])).Set("retry_on_timeout", orEmpty(lists["timeout"]))
		c.Set("retry_on_status", map[string]any{"500": orEmpty(lists["500"]), "503": orEmpty(lists["503"])})
		c.Set("stream_recovery", map[string]any{"mode": mode, "max_retries": most}).Set("min_request_interval_seconds", interval)
	})

	want, gaps, failed := "", []time.Duration{}, -1
	retries, recoveries := 0, 0
	for i, f := range faults {
		if f.breaks && !stream && f.step.cut == nil && !f.step.stall { // the whole body came
			answer = f.step.body
			break
		}
		recovers := stream && mode != "disabled" && recoveries < most
		if f.breaks && stream && f.comment {
			want += ping
		}
		switch {
		case f.list != "" && retries < len(lists[f.list]):
			delay := time.Duration(lists[f.list][retries]) * time.Second
			gaps = append(gaps, f.took+max(delay, f.retryAfter))
			retries++
			continue
		case f.breaks && recovers && !f.content, f.refuse && recovers && recoveries > 0:
			gaps = append(gaps, f.took)
			recoveries++
			continue
		case f.breaks && !stream && f.took > 0 && retries < len(lists["timeout"]): // not streamed, so before streaming
			gaps = append(gaps, f.took+time.Duration(lists["timeout"][retries])*time.Second)
			retries++
			continue
		}
		failed = i
		break
	}
	if failed < 0 {
		want += answer
	}
	s := &script{steps: steps}
	out, err := relay(t.Context(), s, config, stream, 1)
	describe := func() string {
		return fmt.Sprintf("sequence %d: stream %v, mode %s of %d, lists %v, faults %+v", seed, stream, mode, most, lists, faults)
	}
	if len(s.seen) != len(gaps)+1 {
		t.Fatalf("%s: %d requests, want %d", describe(), len(s.seen), len(gaps)+1)
	}
	for i := range gaps {
		got := s.seen[i+1].Sub(s.seen[i])
		if got < gaps[i] || interval == 0 && got != gaps[i] || got < time.Duration(interval)*time.Second {
			t.Fatalf("%s: request %d came after %v, want %v and at least %d s", describe(), i+1, got, gaps[i], interval)
		}
	}
	if (failed >= 0) != (err != nil) {
		t.Fatalf("%s: the error is %v", describe(), err)
	}
	if failed < 0 {
		if got := out.body.String(); got != want || out.status != 200 {
			t.Fatalf("%s: got %d %q, want %q", describe(), out.status, got, want)
		}
		return
	}
	refusal, refused := errors.AsType[*loquat.BackendRefusal](err)
	if f := faults[failed]; refused != (f.step.status != 0) || refused && (refusal.Status != f.step.status || string(refusal.Body) != f.step.body) {
		t.Fatalf("%s: the error is %#v", describe(), err)
	}
	if f := faults[failed]; !strings.HasPrefix(out.body.String(), want) || out.status != 0 && !f.breaks && want == "" {
		t.Fatalf("%s: got %q", describe(), out.body.String())
	}
}

func orEmpty(list []int) []int {
	if list == nil {
		return []int{}
	}
	return list
}

// Each event is passed on when it arrives, whatever the reads are, and never half an event.
func TestRelayPassesWholeEvents(t *testing.T) {
	for _, ends := range []string{"\n", "\r\n", "\r"} {
		events := []string{": ping\n\n", "event: x\ndata: {\"choices\":[]}\n\n", role, says("One"), "data: a\ndata: b\n\n", done[:strings.Index(done, "data: [DONE]")], "data: [DONE]\n\n"}
		events[4] = "data: {\"choices\":[],\ndata: \"b\":1}\n\n"
		for i := range events {
			events[i] = strings.ReplaceAll(events[i], "\n", ends)
		}
		body := strings.Join(events, "")
		for size := range 70 {
			synctest.Test(t, func(t *testing.T) {
				s := &script{steps: []step{{body: body, chunk: size, every: time.Millisecond}}}
				out, err := relay(t.Context(), s, retryConfig(nil), true, 1)
				if err != nil || out.body.String() != body {
					t.Fatalf("reads of %d: %v, %q", size, err, out.body.String())
				}
				passed := ""
				for _, w := range out.writes {
					passed += w
					whole := false
					for i := range events {
						start := strings.Join(events[:i+1], "")
						// A lone \r may be the beginning of a \r\n, which then follows at once.
						whole = whole || passed == start || ends == "\r\n" && passed+"\n" == start
						// A comment is complete with its line.
						comment := ": ping" + ends
						whole = whole || i == 0 && (passed == comment || ends == "\r\n" && passed+"\n" == comment)
					}
					if !whole {
						t.Fatalf("reads of %d: half an event was passed on: %q", size, w)
					}
				}
			})
		}
	}
}

// What the decoder cannot read is passed on as it came.
func TestRelayPassesWhatItCannotRead(t *testing.T) {
	big := "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"" + strings.Repeat("x", 3<<20) + "\"}}]}\n\n"
	for name, body := range map[string]string{
		"not JSON":        says("a") + "data: {not json\n\n" + says("b") + done,
		"an error":        says("a") + "data: {\"error\":{\"message\":\"full\",\"code\":7}}\n\n" + ": after\n\n",
		"an error event":  "event: error\ndata: {\"error\":{\"message\":\"no\"}}\n\n",
		"a stray field":   "error: {\"error\":{\"message\":\"no\"}}\n",
		"late events":     says("a") + done + "data: {\"usage\":{}}\n\n",
		"no last newline": says("a") + strings.TrimSpace(done),
		"a large event":   big + done,
		"deep":            "data: " + strings.Repeat("[", 4000) + strings.Repeat("]", 4000) + "\n\n" + done,
		"other choices":   "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"x\"},\"logprobs\":{\"content\":[]}}]}\n\n" + done,
		"a byte order":    "\xef\xbb\xbf" + says("a") + done,
		"only comments":   ping + ping + done,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, err := relay(t.Context(), &script{steps: []step{{body: body}}}, retryConfig(nil), true, 1)
				if err != nil || out.body.String() != body {
					t.Fatalf("%v: got %d bytes, want %d: %.300q", err, out.body.Len(), len(body), out.body.String())
				}
			})
		})
	}
}

// An answer that is not complete ends with an error, after the events that came whole.
func TestRelayOfBrokenStreams(t *testing.T) {
	finish := done[:strings.Index(done, "data: [DONE]")]
	for name, tc := range map[string]struct {
		step    step
		choices int
		passed  string
		ok      bool
	}{
		"a reset":                         {step{body: says("a") + "data: {\"ch", cut: errReset}, 1, says("a"), false},
		"a clean end":                     {step{body: says("a")}, 1, says("a"), false},
		"silence":                         {step{body: says("a"), stall: true}, 1, says("a"), false},
		"a reset after finish_reason":     {step{body: says("a") + finish, cut: errReset}, 1, says("a") + finish, true},
		"the same with several choices":   {step{body: says("a") + finish, cut: errReset}, 2, says("a") + finish, false},
		"a reset after [DONE]":            {step{body: says("a") + done, cut: errReset}, 2, says("a") + done, true},
		"no end after [DONE]":             {step{body: says("a") + done, stall: true}, 1, says("a") + done, true},
		"a JSON answer that is cut":       {step{body: `{"choices":[`, cut: errReset}, 1, "", false},
		"a large event that is cut":       {step{body: "data: " + strings.Repeat("x", 600<<10), cut: errReset}, 1, "data: " + strings.Repeat("x", 600<<10), false},
		"an answer that is only a status": {step{status: 204}, 1, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, err := relay(t.Context(), &script{steps: []step{tc.step}}, retryConfig(nil), true, tc.choices)
				if got := out.body.String(); (err == nil) != tc.ok || !strings.HasPrefix(tc.passed, got) || len(got) < len(tc.passed)-256<<10 {
					t.Fatalf("error %v, got %.200q", err, got)
				}
			})
		})
	}
}

// A caller that goes away, or cannot be written to, ends the call of the backend.
func TestRelayEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(3*time.Second, cancel)
		s := &script{steps: []step{{hang: true}}}
		if _, err := relay(ctx, s, retryConfig(nil), true, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("the error is %v", err)
		}
		s = &script{steps: []step{{body: strings.Repeat(says("a"), 1000) + done, chunk: 100}}}
		out := &relayed{full: errors.New("the caller is gone")}
		err := provider.New(provider.Options{Transport: s}).Relay(t.Context(), loquat.RelayRequest{Config: retryConfig(nil), Stream: true, Answer: out})
		if err == nil || err.Error() != "the caller is gone" || len(out.writes) != 1 {
			t.Errorf("error %v after %d writes", err, len(out.writes))
		}
	})
}

// Errors do not repeat the key, and bodies without secrets come as they were.
func TestRelayRedactsRefusals(t *testing.T) {
	for body, want := range map[string]string{
		" {\"error\": {\"message\": \"bad key sk-secret-key\"}}\n": `{"error":{"message":"bad key ***"}}`,
		" {\"error\": {\"message\": \"bad key\"}}\n":               " {\"error\": {\"message\": \"bad key\"}}\n",
		"<p>sk-secret-key</p>":                                     "<p>***</p>",
	} {
		_, err := relay(t.Context(), &script{steps: []step{{status: 401, body: body}}}, retryConfig(nil), true, 1)
		refusal, ok := errors.AsType[*loquat.BackendRefusal](err)
		if !ok || string(refusal.Body) != want || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%q: %v, %q", body, err, refusal.Body)
		}
	}
	_, err := relay(t.Context(), &script{steps: []step{{status: 302, header: http.Header{"Location": {"/other"}}}}}, retryConfig(nil), true, 1)
	if _, ok := errors.AsType[*loquat.BackendRefusal](err); ok || loquat.CodeOf(err) != loquat.CodeBackendError {
		t.Errorf("a redirect gives %v", err)
	}
}

// Headers that callers may get do not repeat the key, of an error and of an answer.
func TestRelayRedactsHeaders(t *testing.T) {
	echo := http.Header{"X-Request-Id": {"for sk-secret-key"}, "X-Ratelimit-Limit": {"5"}}
	out, err := relay(t.Context(), &script{steps: []step{{header: echo, body: `{"choices":[]}`}}}, retryConfig(nil), false, 1)
	if err != nil || out.header.Get("X-Request-Id") != "for ***" || out.header.Get("X-Ratelimit-Limit") != "5" {
		t.Errorf("an answer: %v, %v", err, out.header)
	}
	_, err = relay(t.Context(), &script{steps: []step{{status: 401, header: echo, body: `{}`}}}, retryConfig(nil), false, 1)
	refusal, ok := errors.AsType[*loquat.BackendRefusal](err)
	if !ok || refusal.Header.Get("X-Request-Id") != "for ***" || refusal.Header.Get("X-Ratelimit-Limit") != "5" {
		t.Errorf("a refusal: %v, %+v", err, refusal)
	}
}

// Every recording comes back byte for byte, streamed or not, whatever the reads are.
func TestRelayOfRecordings(t *testing.T) {
	dir := os.Getenv("LOQUAT_SHARED")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared")
	}
	files, err := filepath.Glob(filepath.Join(dir, "fixtures", "*", "*"))
	files = slices.DeleteFunc(files, func(name string) bool {
		return strings.HasSuffix(name, ".expected.json") || strings.HasSuffix(name, ".md")
	})
	if err != nil || len(files) == 0 {
		t.Skipf("there are no recordings in %s", dir)
	}
	for _, name := range files {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1, 1000} {
			if size == 1 && len(body) > 20_000 {
				continue
			}
			synctest.Test(t, func(t *testing.T) {
				out, err := relay(t.Context(), &script{steps: []step{{body: string(body), chunk: size}}}, providertest.Config(providertest.URL), strings.HasSuffix(name, ".sse"), 1)
				if err != nil || !bytes.Equal(out.body.Bytes(), body) {
					t.Errorf("%s in reads of %d: %v, got %d of %d bytes", filepath.Base(name), size, err, out.body.Len(), len(body))
				}
			})
		}
	}
}
