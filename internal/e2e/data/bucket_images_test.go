//go:build unix

package data_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/asset/s3/s3test"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// bucketConfig writes a configuration with images in a bucket, and returns its file.
func bucketConfig(t *testing.T, database, bucket, secret string) string {
	t.Helper()
	dir := t.TempDir()
	text := fmt.Sprintf(`{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "http://127.0.0.1:1/v1"}},
		"store": {"url": %q}, "assets": {"url": %q, "access_key_id": %q, "secret_access_key": "${file:%s/secret}"}}`, database, bucket, s3test.AccessKeyID, dir)
	binary.WriteFiles(t, dir, map[string]string{"loquat.json": text, "secret": secret})
	return filepath.Join(dir, "loquat.json")
}

// answeredUpload returns the answer to an upload, and the image if it was stored.
func answeredUpload(t *testing.T, url string, content []byte) (status int, body string, a loquat.Asset) {
	t.Helper()
	resp, err := http.Post(url+"/sessions/a/assets", "image/png", bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if status, body = binary.AnswerOf(t, resp); status == http.StatusCreated {
		if err := json.Unmarshal([]byte(body), &a); err != nil {
			t.Fatal(err)
		}
	}
	return status, body, a
}

// Images are in the bucket: another server with an empty data directory has them. While the
// bucket is away, images are 503 with the reason, and everything else works.
func TestImagesInABucket(t *testing.T) {
	bucket, database := s3test.Start(t), pgtest.Start(t, "fsync=off")
	file := bucketConfig(t, database.URL("postgres"), bucket.URL("loquat"), s3test.SecretAccessKey)
	p := servePostgres(t, file, filepath.Join(t.TempDir(), "data"))
	if body := binary.Call(t, http.MethodPost, p.URL+"/sessions", `{"session_id": "a"}`); !strings.Contains(body, `"a"`) {
		t.Fatal(body)
	}
	content := binary.Photo(1, 3<<20)
	status, body, a := answeredUpload(t, p.URL, content)
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	_, _, again := answeredUpload(t, p.URL, content)
	if objects := bucket.Objects("loquat/*-" + a.SHA256 + "-*"); len(objects) != 1 || again.SHA256 != a.SHA256 {
		t.Errorf("the objects of two equal images are %q", objects)
	}
	p.Kill(t)
	p = servePostgres(t, file, filepath.Join(t.TempDir(), "data"))
	path := p.URL + "/sessions/a/assets/" + a.AssetID
	if status, body := binary.GetOnce(t, path); status != 200 || body != string(content) {
		t.Errorf("the image: %d, %d bytes", status, len(body))
	}

	bucket.Stop()
	for what, answer := range map[string]func() (int, string){
		"download": func() (int, string) { return binary.GetOnce(t, path) },
		"upload": func() (int, string) {
			status, body, _ := answeredUpload(t, p.URL, binary.Photo(2, 100_000))
			return status, body
		},
	} {
		if status, body := answer(); status != 503 || !strings.Contains(body, "object store of images cannot be reached") {
			t.Errorf("%s while the bucket is away: %d %s", what, status, body)
		}
	}
	binary.Eventually(t, "/readyz names the images", func() bool {
		status, body := binary.GetOnce(t, p.URL+"/readyz")
		return status == 200 && strings.Contains(body, "object store of images cannot be reached")
	})
	if status, _ := binary.GetOnce(t, p.URL+"/sessions/a"); status != 200 {
		t.Errorf("a session while the bucket is away: %d", status)
	}

	bucket.Restart()
	if status, body := binary.GetOnce(t, path); status != 200 || body != string(content) {
		t.Errorf("the image after the bucket is back: %d, %d bytes", status, len(body))
	}
	if status, body, _ := answeredUpload(t, p.URL, binary.Photo(2, 100_000)); status != http.StatusCreated {
		t.Errorf("an upload after the bucket is back: %d %s", status, body)
	}
	binary.Eventually(t, "/readyz names no images", func() bool {
		_, body := binary.GetOnce(t, p.URL+"/readyz")
		return !strings.Contains(body, "object store")
	})
}

// loquat migrate moves images out of a bucket and into another part of it.
func TestMovedImages(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", s3test.AccessKeyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", s3test.SecretAccessKey)
	bucket, server := s3test.Start(t), pgtest.Start(t, "fsync=off")
	_, target := server.Database(t)
	first, dir := server.URL("postgres"), filepath.Join(t.TempDir(), "data")
	p := servePostgres(t, bucketConfig(t, first, bucket.URL("first"), s3test.SecretAccessKey), filepath.Join(t.TempDir(), "data"))
	binary.Call(t, http.MethodPost, p.URL+"/sessions", `{"session_id": "a"}`)
	content := binary.Photo(1, 300_000)
	status, body, a := answeredUpload(t, p.URL, content)
	if status != http.StatusCreated {
		t.Fatalf("%d %s", status, body)
	}
	p.End(t)
	var out strings.Builder
	for _, move := range [][]string{
		{"migrate", "--from", first, "--to", dir, "--assets", bucket.URL("first")},
		{"migrate", "--from", dir, "--to", target, "--assets", bucket.URL("second")},
	} {
		if err := binary.Run(t.Context(), move, nil, &out, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(out.String(), "and assets.url to "+bucket.URL("second")) {
		t.Errorf("the commands say %s", &out)
	}
	if objects := bucket.Objects("second/*-" + a.SHA256 + "-*"); len(objects) != 1 {
		t.Errorf("the objects of the image are %q", objects)
	}
	p = servePostgres(t, bucketConfig(t, target, bucket.URL("second"), s3test.SecretAccessKey), filepath.Join(t.TempDir(), "data"))
	if status, body := binary.GetOnce(t, p.URL+"/sessions/a/assets/"+a.AssetID); status != 200 || body != string(content) {
		t.Errorf("the image after two moves: %d, %d bytes", status, len(body))
	}
}

// A wrong secret or bucket ends the start with the remedy, and no output shows the secret.
func TestBucketThatRefuses(t *testing.T) {
	bucket, database := s3test.Start(t), pgtest.Start(t, "fsync=off")
	for says, c := range map[string]struct{ url, secret string }{
		"correct assets.secret_access_key": {bucket.URL("loquat"), "wrong-secret-hunter2"},
		"does not exist; create it":        {strings.Replace(bucket.URL(""), s3test.Bucket, "other-bucket", 1), s3test.SecretAccessKey},
	} {
		file := bucketConfig(t, database.URL("postgres"), c.url, c.secret)
		code, stderr := binary.Exit(t, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", filepath.Join(t.TempDir(), "data"))
		if code != 1 || !strings.Contains(stderr, says) || strings.Contains(stderr, "hunter2") {
			t.Errorf("%d, %s; want %q", code, stderr, says)
		}
		var shown bytes.Buffer
		if err := binary.Run(t.Context(), []string{"config", "show", "--config", file}, nil, &shown, os.Stderr); err != nil || strings.Contains(shown.String(), "hunter2") || !strings.Contains(shown.String(), "secret_access_key") {
			t.Errorf("config show: %v\n%s", err, shown.String())
		}
	}
}
