package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect returns a client of a test server with the handler h.
func connect(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	server := httptest.NewServer(h)
	c, err := client.New(server.URL, client.Options{Token: "t0ken"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.CloseIdleConnections()
		server.CloseClientConnections()
		server.Close()
	})
	return c
}

// pretend returns a client whose calls go to rt, for tests with a fake clock.
func pretend(t *testing.T, rt func(*http.Request) (*http.Response, error), patience time.Duration) *client.Client {
	t.Helper()
	c, err := client.New("http://loquat.test/prefix", client.Options{HTTPClient: &http.Client{Transport: roundTripper(rt)}, Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(status int, contentType, body string) *http.Response {
	return &http.Response{StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {contentType}},
		Body: io.NopCloser(strings.NewReader(body))}
}

func TestNewRejectsInvalidAddresses(t *testing.T) {
	for _, bad := range []string{"", "localhost:8787", "/x", "ftp://host", "http://", "http://[::1"} {
		if _, err := client.New(bad, client.Options{}); loquat.CodeOf(err) != loquat.CodeInvalid {
			t.Errorf("New(%q) = %v, want an error with code invalid", bad, err)
		}
	}
}

func TestCalls(t *testing.T) {
	three := 3
	text := "hi"
	tests := []struct {
		name         string
		call         func(context.Context, *client.Client) (any, error)
		request      string // method and URI
		body, answer string
		keyed        bool
		want         string // JSON of what the call returned
	}{
		{"create", func(ctx context.Context, c *client.Client) (any, error) {
			s, err := c.CreateSession(ctx, loquat.NewSession{AgentID: "a"})
			return s.Checkpoint, err
		}, "POST /sessions", `{"agent_id":"a"}`, `{"session_id":"s"}`, true, `"0000000000000007"`},
		{"session", func(ctx context.Context, c *client.Client) (any, error) {
			s, err := c.Session(ctx, "s")
			return s.ActiveRequestID, err
		}, "GET /sessions/s", ``, `{"session_id":"s","active_request_id":"r"}`, false, `"r"`},
		{"sessions", func(ctx context.Context, c *client.Client) (any, error) {
			l, err := c.Sessions(ctx, loquat.SessionQuery{Limit: 2, PageToken: "p"})
			return l.NextPageToken, err
		}, "GET /sessions?limit=2&page_token=p", ``, `{"sessions":[],"next_page_token":"q"}`, false, `"q"`},
		{"search", func(ctx context.Context, c *client.Client) (any, error) {
			at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
			r, err := c.Search(ctx, loquat.SearchQuery{Text: `a "b"`, In: []string{loquat.PartText, loquat.PartTool}, Since: at, SessionID: "s", Limit: 2})
			return r.Hits[0].Snippet.Parts[0].Text, err
		}, "GET /search?in=text&in=tool&limit=2&q=a+%22b%22&session_id=s&since=2026-01-02T03%3A04%3A05Z", ``,
			`{"hits":[{"part":"text","snippet":{"parts":[{"text":"a","hit":true}]}}]}`, false, `"a"`},
		{"sessions that match", func(ctx context.Context, c *client.Client) (any, error) {
			l, err := c.Sessions(ctx, loquat.SessionQuery{Text: "a b"})
			return *l.Sessions[0].Match.Index, err
		}, "GET /sessions?q=a+b", ``, `{"sessions":[{"session_id":"s","match":{"part":"text","index":3,"snippet":{"parts":[]}}}]}`, false, `3`},
		{"update", func(ctx context.Context, c *client.Client) (any, error) {
			s, err := c.UpdateSession(ctx, "s", loquat.SessionPatch{Metadata: loquat.Object{"a": json.RawMessage("null")}}, client.IfMatch(7))
			return s.SessionID, err
		}, "PATCH /sessions/s", `{"metadata":{"a":null}}`, `{"session_id":"s"}`, false, `"s"`},
		{"delete", func(ctx context.Context, c *client.Client) (any, error) {
			return nil, c.DeleteSession(ctx, "s")
		}, "DELETE /sessions/s", ``, ``, false, `null`},
		{"fork", func(ctx context.Context, c *client.Client) (any, error) {
			s, err := c.Fork(ctx, "s", loquat.Fork{UpToIndex: &three})
			return s.SessionID, err
		}, "POST /sessions/s/fork", `{"up_to_index":3}`, `{"session_id":"t"}`, true, `"t"`},
		{"messages", func(ctx context.Context, c *client.Client) (any, error) {
			p, err := c.Messages(ctx, "s", client.Page{From: 1, Limit: 2, At: 9})
			return p.Total, err
		}, "GET /sessions/s/messages?at=0000000000000009&from=1&limit=2", ``, `{"total":4,"messages":[]}`, false, `4`},
		{"last messages", func(ctx context.Context, c *client.Client) (any, error) {
			p, err := c.Messages(ctx, "s", client.Page{Last: 60})
			return p.Total, err
		}, "GET /sessions/s/messages?last=60", ``, `{"total":4,"messages":[]}`, false, `4`},
		{"head", func(ctx context.Context, c *client.Client) (any, error) {
			s, err := c.Head(ctx, "s")
			return s, err
		}, "GET /sessions/s", ``, `{"session_id":"s","agent_id":"a","metadata":{"title":"t"},"messages":[{"id":`, false,
			`{"session_id":"s","agent_id":"a","created_at":"0001-01-01T00:00:00Z","updated_at":"0001-01-01T00:00:00Z","metadata":{"title":"t"},"messages":null}`},
		{"head behind the messages", func(ctx context.Context, c *client.Client) (any, error) {
			s, err := c.Head(ctx, "s")
			return s.Metadata, err
		}, "GET /sessions/s", ``, `{"session_id":"s","messages":[{"id":"m"}],"metadata":{"title":"t"}}`, false, `{"title":"t"}`},
		{"config", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Config(ctx, "s")
		}, "GET /sessions/s/config", ``, `{"values":{"model":{"value":"m","source":"config"}}}`, false, `{"model":{"value":"m","source":"config"}}`},
		{"plugins", func(ctx context.Context, c *client.Client) (any, error) {
			l, err := c.Plugins(ctx)
			return l[0].State, err
		}, "GET /plugins", ``, `{"plugins":[{"name":"p","state":"starting"}]}`, false, `"starting"`},
		{"list fields", func(ctx context.Context, c *client.Client) (any, error) {
			return c.ListFields(ctx)
		}, "GET /application/ui-schema", ``, `{"schema_version":1,"elements":[{"ui_type":"config","key":"k"},{"ui_type":"session_list_field","key":"f"}]}`, false,
			`[{"key":"f","ui_type":"session_list_field"}]`},
		{"act", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.Act(ctx, "s", "throw", loquat.Action{Plugin: "dice", ElementID: "e", Params: loquat.Object{}.Set("count", 2)})
			return r.Result, err
		}, "POST /sessions/s/actions/throw", `{"plugin":"dice","element_id":"e","params":{"count":2}}`, `{"result":[6,1]}`, false, `[6,1]`},
		{"alternatives", func(ctx context.Context, c *client.Client) (any, error) {
			l, err := c.Alternatives(ctx, "s")
			return l[0].AlternativeID, err
		}, "GET /sessions/s/alternatives", ``, `{"alternatives":[{"alternative_id":"a","index":1}]}`, false, `"a"`},
		{"switch", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.Switch(ctx, "s", "a")
			return r.Total, err
		}, "POST /sessions/s/alternatives/a/switch", ``, `{"total":2}`, true, `2`},
		{"queue", func(ctx context.Context, c *client.Client) (any, error) {
			q, err := c.Queue(ctx, "s")
			return q[0].RequestID, err
		}, "GET /sessions/s/queue", ``, `{"queue":[{"request_id":"r"}]}`, false, `"r"`},
		{"upload", func(ctx context.Context, c *client.Client) (any, error) {
			a, err := c.Upload(ctx, "s", "a b.png", "image/png", []byte("bytes"))
			return a.AssetID, err
		}, "POST /sessions/s/assets?name=a+b.png", `bytes`, `{"asset_id":"x"}`, true, `"x"`},
		{"events of the list", func(ctx context.Context, c *client.Client) (any, error) {
			w, err := c.Events(ctx, client.Query{SessionID: "s", List: true})
			return w.JSON, err
		}, "GET /events?list=true&session_id=s", ``, `{"events":[]}`, false, `[]`},
		{"append", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.AppendMessage(ctx, "s", loquat.NewMessage{Role: "user"})
			return r.Index, err
		}, "POST /sessions/s/messages", `{"role":"user","content":""}`, `{"index":5}`, true, `5`},
		{"modify", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.ModifyMessage(ctx, "s", 3, "x")
			return r.Message.Content, err
		}, "PATCH /sessions/s/messages/3", `{"content":"x"}`, `{"message":{"content":"x"}}`, false, `"x"`},
		{"delete messages", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.DeleteMessages(ctx, "s", []int{3, 4})
			return r.Indices, err
		}, "DELETE /sessions/s/messages", `{"indices":[3,4]}`, `{"indices":[3,4]}`, false, `[3,4]`},
		{"send", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.Send(ctx, "s", loquat.Send{Content: &text, Stream: new(true)})
			return r.Status, err
		}, "POST /sessions/s/send", `{"content":"hi","stream":true}`, `{"status":"queued"}`, true, `"queued"`},
		{"request", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.Request(ctx, "r")
			return r.Status, err
		}, "GET /requests/r", ``, `{"status":"failed"}`, false, `"failed"`},
		{"cancel", func(ctx context.Context, c *client.Client) (any, error) {
			r, err := c.Cancel(ctx, "r")
			return r.Status, err
		}, "POST /requests/r/cancel", ``, `{"status":"running"}`, true, `"running"`},
		{"agents", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Agents(ctx)
		}, "GET /agents", ``, `{"agents":[{"agent_id":"a","provider":"p","model":"m"}]}`, false, `[{"agent_id":"a","provider":"p","model":"m"}]`},
		{"models", func(ctx context.Context, c *client.Client) (any, error) {
			return c.Models(ctx, client.ModelQuery{AgentID: "a", Refresh: true})
		}, "GET /models?agent_id=a&refresh=true", ``, `{"models":[{"id":"m","ctx":1}]}`, false, `[{"ctx":1,"id":"m"}]`},
		{"events", func(ctx context.Context, c *client.Client) (any, error) {
			w, err := c.Events(ctx, client.Query{RequestID: "r", Limit: 9, Wait: 1500 * time.Millisecond, OmitSession: true})
			return w.JSON, err
		}, "GET /events?limit=9&request_id=r&session=omit&wait=1.5", ``, `{"events":[{"event_id":"0000000000000001","type":"x","new":[ 1 ]}]}`, false,
			`[{"event_id":"0000000000000001","type":"x","new":[1]}]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if got := r.Method + " " + r.RequestURI; got != tt.request {
					t.Errorf("request %s, want %s", got, tt.request)
				}
				if string(body) != tt.body {
					t.Errorf("body %s, want %s", body, tt.body)
				}
				if got := r.Header.Get("Idempotency-Key") != ""; got != tt.keyed {
					t.Errorf("has an Idempotency-Key: %v, want %v", got, tt.keyed)
				}
				if got := r.Header.Get("Authorization"); got != "Bearer t0ken" {
					t.Errorf("Authorization %q", got)
				}
				if tt.name == "update" && r.Header.Get("If-Match") != `"0000000000000007"` {
					t.Errorf("If-Match %q", r.Header.Get("If-Match"))
				}
				w.Header().Set("ETag", `"0000000000000007"`)
				io.WriteString(w, tt.answer)
			})
			got, err := tt.call(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := json.Marshal(got); string(b) != tt.want {
				t.Errorf("returned %s, want %s", b, tt.want)
			}
		})
	}
}

// A proxy that compresses answers makes their ETag a weak one. The checkpoint is the same.
func TestWeakETag(t *testing.T) {
	for tag, want := range map[string]loquat.EventID{`W/"0000000000000007"`: 7, `"0000000000000007"`: 7, `"7"`: 0, "": 0} {
		c := connect(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("ETag", tag)
			io.WriteString(w, `{}`)
		})
		page, err := c.Messages(t.Context(), "s", client.Page{})
		if err != nil || page.Checkpoint != want {
			t.Errorf("the checkpoint of %s is %s (%v)", tag, page.Checkpoint, err)
		}
	}
}

// Elements has those of core plugins before those of application plugins.
func TestElements(t *testing.T) {
	c := connect(t, func(w http.ResponseWriter, r *http.Request) {
		key := map[string]string{"/sessions/s/ui-schema": "core", "/sessions/s/application/ui-schema": "application"}[r.URL.Path]
		fmt.Fprintf(w, `{"schema_version":1,"elements":[{"key":%q}]}`, key)
	})
	elements, err := c.Elements(t.Context(), "s")
	if err != nil || len(elements) != 2 || elements[0].String("key") != "core" || elements[1].String("key") != "application" {
		t.Errorf("got %v (%v)", elements, err)
	}
}

func TestFailures(t *testing.T) {
	tests := []struct {
		name, contentType, body string
		status                  int
		want                    loquat.Error
	}{
		{"fields", "application/problem+json", `{"code":"invalid","detail":"d","errors":[{"location":"body.x","message":"m"}]}`, 422,
			loquat.Error{Code: "invalid", Detail: "d", Fields: []loquat.FieldError{{Location: "body.x", Message: "m"}}}},
		{"malformed", "application/problem+json; charset=utf-8", `{"code":"invalid","detail":"d"}`, 400, loquat.Error{Code: "invalid", Detail: "d", Malformed: true}},
		{"busy", "application/problem+json", `{"code":"busy","detail":"d","request_id":"r"}`, 409, loquat.Error{Code: "busy", Detail: "d", RequestID: "r"}},
		{"no code", "application/problem+json", `{"title":"Gone","status":410}`, 410, loquat.Error{Code: "gone", Detail: "Gone"}},
		{"a code of tomorrow", "application/problem+json", `{"code":"asleep","detail":"d"}`, 409, loquat.Error{Code: "asleep", Detail: "d"}},
		{"a proxy's page", "text/html", "<h1>No\n entry</h1>", 403, loquat.Error{Code: "forbidden", Detail: `"<h1>No entry</h1>"`}},
		{"nothing", "", "", 404, loquat.Error{Code: "not_found", Detail: "nothing"}},
		{"teapot", "", "", 418, loquat.Error{Code: "internal", Detail: "is a loquat server there?"}},
		{"no problem at all", "application/problem+json", `[]`, 500, loquat.Error{Code: "internal", Detail: `"[]"`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			calls := 0
			c := connect(t, func(w http.ResponseWriter, r *http.Request) {
				calls++
				w.Header().Set("Content-Type", tt.contentType)
				w.WriteHeader(tt.status)
				io.WriteString(w, tt.body)
			})
			_, err := c.Send(t.Context(), "s", loquat.Send{})
			got, ok := errors.AsType[*loquat.Error](err)
			if !ok {
				t.Fatalf("%v is not a *loquat.Error", err)
			}
			if got.Code != tt.want.Code || !strings.Contains(got.Detail, tt.want.Detail) || got.Malformed != tt.want.Malformed ||
				got.RequestID != tt.want.RequestID || len(got.Fields) != len(tt.want.Fields) {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			if calls != 1 {
				t.Errorf("made %d calls, want 1: the server has answered", calls)
			}
		})
	}
}

// The client repeats a send whose answer was lost with the same key and body. It does not
// repeat calls for which the API has no key.
func TestRepeats(t *testing.T) {
	tests := []struct {
		name  string
		lost  int // answers
		call  func(context.Context, *client.Client) error
		calls int
		want  loquat.Code
	}{
		{"send", 2, send, 3, ""},
		{"send to nobody", 100, send, client.MaxAttempts, loquat.CodeUnavailable},
		{"load", 1, func(ctx context.Context, c *client.Client) error { _, err := c.Session(ctx, "s"); return err }, 2, ""},
		{"delete", 1, func(ctx context.Context, c *client.Client) error { return c.DeleteSession(ctx, "s") }, 1, loquat.CodeUnavailable},
		{"modify", 1, func(ctx context.Context, c *client.Client) error {
			_, err := c.ModifyMessage(ctx, "s", 0, "")
			return err
		}, 1, loquat.CodeUnavailable},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var made []string // key and body of each call
				c := pretend(t, func(r *http.Request) (*http.Response, error) {
					body, _ := io.ReadAll(r.Body)
					made = append(made, r.Header.Get("Idempotency-Key")+" "+string(body))
					if len(made) <= tt.lost {
						return nil, io.ErrUnexpectedEOF
					}
					return answer(200, "application/json", `{}`), nil
				}, 0)
				if err := tt.call(t.Context(), c); loquat.CodeOf(err) != tt.want {
					t.Errorf("got %v, want code %q", err, tt.want)
				}
				if len(made) != tt.calls || len(slices.Compact(slices.Clone(made))) != 1 {
					t.Errorf("made the calls %q, want the same %d times", made, tt.calls)
				}
			})
		})
	}
}

func send(ctx context.Context, c *client.Client) error {
	text := "once"
	_, err := c.Send(ctx, "s", loquat.Send{Content: &text})
	return err
}

// An answer that breaks off counts as lost. Each send has a key of its own.
func TestEachSendHasItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keys []string
		c := pretend(t, func(r *http.Request) (*http.Response, error) {
			keys = append(keys, r.Header.Get("Idempotency-Key"))
			resp := answer(200, "application/json", `{}`)
			if len(keys) == 1 {
				resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"requ`), broken{}))
			}
			return resp, nil
		}, 0)
		for range 2 {
			if err := send(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if len(keys) != 3 || keys[0] == "" || keys[0] != keys[1] || keys[1] == keys[2] {
			t.Errorf("keys %q, want one for two calls and another for the third", keys)
		}
	})
}

// The client repeats a call whose error answer breaks off, because the code is not known.
func TestIncompleteErrorAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		c := pretend(t, func(*http.Request) (*http.Response, error) {
			calls++
			refusal := answer(409, "application/problem+json", `{"code":"busy","request_id":"r"}`)
			if calls == 1 {
				refusal.Body = io.NopCloser(io.MultiReader(strings.NewReader(`{"code":"bu`), iotest.ErrReader(io.ErrUnexpectedEOF)))
			}
			return refusal, nil
		}, 0)
		if err := send(t.Context(), c); loquat.CodeOf(err) != loquat.CodeBusy || calls != 2 {
			t.Errorf("after %d calls: %v", calls, err)
		}
	})
}

func TestRepeatsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := pretend(t, func(*http.Request) (*http.Response, error) { return nil, errors.New("refused") }, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		if _, err := c.Session(ctx, "s"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
	})
}

// A server that answers with a certificate that cannot be verified is not one that is down.
func TestUnverifiedCertificate(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	_, err = c.Tokens(t.Context())
	if failed, ok := errors.AsType[*loquat.Error](err); !ok || failed.Code != loquat.CodeUnavailable ||
		!strings.Contains(failed.Detail, "cannot be verified") || !strings.Contains(failed.Detail, "SSL_CERT_FILE") {
		t.Errorf("a certificate of an unknown authority: %v", err)
	}
}
