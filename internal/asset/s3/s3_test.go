package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/assettest"
	"loquat/internal/asset/s3"
	"loquat/internal/asset/s3/s3test"
	"loquat/internal/faultproxy"
)

func open(t *testing.T, o s3.Options) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestBucket(t *testing.T) {
	server := s3test.Start(t)
	var n atomic.Int64
	assettest.Run(t, func(t *testing.T) assettest.Place {
		prefix := fmt.Sprintf("place-%d/images", n.Add(1))
		return assettest.Place{
			Open:   func(t *testing.T) asset.Store { return open(t, server.Options(t, prefix, server.Addr)) },
			Name:   func(_ *testing.T, u *asset.Upload) string { return fmt.Sprintf("%s-%d", u.SHA256, n.Add(1)) },
			Remote: true,
		}
	})
}

// Without credentials in the options those of the environment are used.
func TestCredentialsOfTheEnvironment(t *testing.T) {
	server := s3test.Start(t)
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretAccessKey)
	o := server.Options(t, "", server.Addr)
	o.AccessKeyID, o.SecretAccessKey = "", ""
	if err := open(t, o).Check(t.Context()); err != nil {
		t.Error(err)
	}
}

// A server that refuses is a mistake of the configuration, and the error says which.
func TestRefusals(t *testing.T) {
	server := s3test.Start(t)
	for name, c := range map[string]struct {
		change func(*s3.Options)
		says   string
	}{
		"key":    {func(o *s3.Options) { o.AccessKeyID = "nobody" }, "refused the request"},
		"secret": {func(o *s3.Options) { o.SecretAccessKey = "other-secret" }, "refused the secret key"},
		"bucket": {func(o *s3.Options) { o.Location.Bucket = "missing" }, "does not exist"},
	} {
		o := server.Options(t, "p", server.Addr)
		c.change(&o)
		_, err := s3.Open(t.Context(), o)
		_, refused := errors.AsType[*s3.RefusedError](err)
		down, ok := errors.AsType[*asset.UnavailableError](err)
		if !refused || !ok || !strings.Contains(down.Text, c.says) {
			t.Errorf("%s: %v", name, err)
		}
		if text := fmt.Sprint(err); strings.Contains(text, "hunter2") || strings.Contains(text, "other-secret") || !strings.Contains(text, server.Addr) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// While the server is away, every call says so, also those that were opened before; afterwards
// everything is as it was.
func TestServerStopsAndComesBack(t *testing.T) {
	server := s3test.Start(t)
	b := open(t, server.Options(t, "p", server.Addr))
	u := assettest.Receive(t, assettest.PNG(t, 1, 3<<20))
	if err := b.Put(t.Context(), "one", u); err != nil {
		t.Fatal(err)
	}
	f, err := b.Open(t.Context(), "one", u.Size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	server.Stop()
	_, opened := b.Open(t.Context(), "one", u.Size)
	_, read := io.Copy(io.Discard, f)
	_, again := s3.Open(t.Context(), server.Options(t, "p", server.Addr))
	for what, err := range map[string]error{
		"open": opened, "read": read, "start": again, "put": b.Put(t.Context(), "two", u), "remove": b.Remove(t.Context(), "one"), "check": b.Check(t.Context()),
	} {
		down, ok := errors.AsType[*asset.UnavailableError](err)
		if _, refused := errors.AsType[*s3.RefusedError](err); !ok || refused || !strings.Contains(down.Text, "cannot be reached") {
			t.Errorf("%s: %v", what, err)
		}
	}
	server.Restart()
	f, err = b.Open(t.Context(), "one", u.Size)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, f); n != u.Size || err != nil {
		t.Errorf("read %d bytes: %v", n, err)
	}
	f.Close()
}

// A network that cuts, stalls and slows connections costs time, not bytes: what was stored can be
// read, and what failed is not visible.
func TestFaultyNetwork(t *testing.T) {
	server := s3test.Start(t)
	proxy, err := faultproxy.Start(faultproxy.Options{
		Target: server.Addr, Seed: 7, Cut: 0.3, Stall: 0.2, Slow: 0.1, Within: 1 << 20, StallFor: 300 * time.Millisecond, Rate: 4 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	o := server.Options(t, "p", proxy.Addr())
	direct := open(t, server.Options(t, "p", server.Addr))
	b, err := s3.Open(t.Context(), o)
	if b == nil {
		t.Fatal(err)
	}
	stored, failed := 0, 0
	for i := range 40 {
		content := assettest.PNG(t, i, 300<<10)
		u, name := assettest.Receive(t, content), fmt.Sprint("image-", i)
		if err := b.Put(t.Context(), name, u); err != nil {
			failed++
			if f, err := direct.Open(t.Context(), name, u.Size); err == nil {
				if n, err := io.Copy(io.Discard, f); n != u.Size || err != nil {
					t.Errorf("%s, whose put failed, has %d bytes: %v", name, n, err)
				}
				f.Close()
			}
			continue
		}
		stored++
		for try := 0; ; try++ {
			got, err := readAll(t.Context(), b, name, u.Size)
			if err == nil && got == string(content) {
				break
			}
			if err == nil || try == 5 {
				t.Errorf("%s: %d bytes, %v", name, len(got), err)
				break
			}
		}
	}
	t.Logf("%d stored, %d failed, %+v", stored, failed, proxy.Stats())
	if stored < 20 || proxy.Stats().Cuts == 0 {
		t.Error("the network was too good or too bad for this test")
	}
}

func readAll(ctx context.Context, b *s3.Bucket, name string, size int64) (string, error) {
	f, err := b.Open(ctx, name, size)
	if err != nil {
		return "", err
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	return string(got), err
}

// A server that is busy is asked again. One that stays busy is an error that a retry may solve.
func TestBusyServer(t *testing.T) {
	var calls, busy atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1); busy.Add(-1) >= 0 {
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			if r.Method != http.MethodHead {
				_, _ = io.WriteString(w, `<Error><Code>SlowDown</Code><Message>later</Message></Error>`)
			}
			return
		}
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	}))
	defer server.Close()
	l, err := asset.ParseLocation("s3://images?path_style=true&endpoint=" + server.URL)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, s3.Options{Location: l, AccessKeyID: "key", SecretAccessKey: "secret"})
	u := assettest.Receive(t, assettest.PNG(t, 1, 1000))
	busy.Store(2)
	if err := b.Put(t.Context(), "one", u); err != nil {
		t.Errorf("a put that the server asks twice to repeat later: %v", err)
	}
	busy.Store(1000)
	began := time.Now()
	err = b.Put(t.Context(), "two", u)
	if down, ok := errors.AsType[*asset.UnavailableError](err); !ok || !strings.Contains(down.Text, "failed") || time.Since(began) > 20*time.Second {
		t.Errorf("a server that stays busy: %v after %s", err, time.Since(began))
	}
}
