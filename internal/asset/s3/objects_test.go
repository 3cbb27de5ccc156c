package s3_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/s3"
	"loquat/internal/asset/s3/s3test"
)

// objectsAt returns the objects of a server.
func objectsAt(t *testing.T, server *httptest.Server) *s3.Objects {
	t.Helper()
	objects, err := s3.OpenObjects(s3.Options{
		Location:    asset.Location{Bucket: "bucket", Endpoint: strings.TrimPrefix(server.URL, "http://"), Insecure: true, PathStyle: true, Region: "us-east-1"},
		AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey,
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// A server that stalls in the middle of an object or of a list ends the call with an error.
func TestServerStallsWhileItSends(t *testing.T) {
	s3.SetIdleTimeout(t, 300*time.Millisecond)
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := "a part of it"
		if r.URL.Query().Has("list-type") {
			begin = `<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name>`
		} else {
			w.Header().Set("Content-Length", "1000")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		}
		_, _ = io.WriteString(w, begin)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(held)
	objects := objectsAt(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	body, err := objects.Get(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(body)
	if err == nil || ctx.Err() != nil || string(text) != "a part of it" {
		t.Errorf("an object: %q %v", text, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	err = objects.List(ctx, "", func(string, int64) error { return nil })
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no bytes for too long") {
		t.Errorf("a list: %v", err)
	}
}

// small answers as a server with two objects that takes uploads in parts. While stalled is set, it does not
// read a part until held is closed.
func small(stalled *atomic.Bool, held <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", `"1"`)
		switch query := r.URL.Query(); {
		case r.Method == http.MethodPut && stalled.Load():
			<-held
		case r.Method == http.MethodPut:
			_, _ = io.Copy(io.Discard, r.Body)
		case query.Has("uploads"):
			_, _ = io.WriteString(w, `<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>`)
		case r.Method == http.MethodPost:
			_, _ = io.WriteString(w, `<CompleteMultipartUploadResult><Bucket>bucket</Bucket><Key>name</Key><ETag>"1"</ETag></CompleteMultipartUploadResult>`)
		case query.Get("continuation-token") != "":
			_, _ = io.WriteString(w, `<ListBucketResult><Contents><Key>b</Key><Size>1</Size></Contents></ListBucketResult>`)
		case query.Has("list-type"):
			_, _ = io.WriteString(w, `<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents><IsTruncated>true</IsTruncated><NextContinuationToken>more</NextContinuationToken></ListBucketResult>`)
		default:
			_, _ = io.WriteString(w, "an object")
		}
	})
}

// The time in which Loquat itself is busy is not that of the server.
func TestBusyCaller(t *testing.T) {
	const idle = 300 * time.Millisecond
	s3.SetIdleTimeout(t, idle)
	var stalled atomic.Bool
	held := make(chan struct{})
	server := httptest.NewServer(small(&stalled, held))
	defer server.Close()
	defer close(held)
	objects := objectsAt(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	busy := func() { time.Sleep(idle + 200*time.Millisecond) }

	body, err := objects.Get(ctx, "name")
	if err != nil {
		t.Fatal(err)
	}
	busy() // as a merge does, which opens all its files first
	if text, err := io.ReadAll(body); err != nil || string(text) != "an object" {
		t.Errorf("an object that is read later: %q %v", text, err)
	}
	if err := body.Close(); err != nil {
		t.Error(err)
	}
	var names []string
	if err := objects.List(ctx, "", func(name string, _ int64) error { busy(); names = append(names, name); return nil }); err != nil || len(names) != 2 {
		t.Errorf("a list whose objects take time: %q %v", names, err)
	}
	slow := iotest.OneByteReader(strings.NewReader("ab"))
	source := readerFunc(func(p []byte) (int, error) { busy(); return slow.Read(p) })
	if err := objects.Put(ctx, "name", -1, source); err != nil {
		t.Errorf("a slow source: %v", err)
	}
	stalled.Store(true)
	err = objects.Put(ctx, "name", -1, bytes.NewReader(make([]byte, 20<<20)))
	if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "no bytes for too long") {
		t.Errorf("a server that takes no bytes: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
