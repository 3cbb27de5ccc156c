package s3_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"loquat/internal/asset"
	"loquat/internal/asset/s3"
	"loquat/internal/asset/s3/s3test"
)

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
	objects, err := s3.OpenObjects(s3.Options{
		Location:    asset.Location{Bucket: "bucket", Endpoint: strings.TrimPrefix(server.URL, "http://"), Insecure: true, PathStyle: true, Region: "us-east-1"},
		AccessKeyID: s3test.AccessKeyID, SecretAccessKey: s3test.SecretAccessKey,
	})
	if err != nil {
		t.Fatal(err)
	}
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
