//go:build unix

package data_test

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"loquat"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

func mustUpload(t *testing.T, url, session string, content []byte) loquat.Asset {
	t.Helper()
	a, status, err := upload(t.Context(), url, session, bytes.NewReader(content))
	if err != nil || status != http.StatusCreated {
		t.Fatalf("upload: %d, %v", status, err)
	}
	return a
}

// wantImage requires that a server serves an image, whole and in part.
func wantImage(t *testing.T, url, session string, a loquat.Asset, content []byte) {
	t.Helper()
	path := url + "/sessions/" + session + "/assets/" + a.AssetID
	if status, body := binary.GetOnce(t, path); status != 200 || body != string(content) {
		t.Errorf("the image: %d, %d bytes, want %d", status, len(body), len(content))
		return
	}
	from, to := len(content)/3, len(content)-7
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if status, body := binary.AnswerOf(t, resp); status != http.StatusPartialContent || body != string(content[from:to]) {
		t.Errorf("bytes %d to %d: %d, %d bytes", from, to, status, len(body))
	}
}

// Images are in the database: a server with another, empty data directory has them.
func TestImagesInPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	file, dir := postgresConfig(t, server.URL("postgres")), filepath.Join(t.TempDir(), "data")
	p := servePostgres(t, file, dir)
	if status, _, body := createSession(t, p.URL, "a"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	content := binary.Photo(1, 3<<20)
	a := mustUpload(t, p.URL, "a", content)
	wantImage(t, p.URL, "a", a, content)
	if names, _ := filesBelow(t, filepath.Join(dir, "assets")); len(names) > 0 {
		t.Errorf("files in the data directory: %q", names)
	}
	p.Kill(t)
	if err := os.RemoveAll(filepath.Join(dir, "assets")); err != nil {
		t.Fatal(err)
	}
	p = servePostgres(t, file, dir)
	wantImage(t, p.URL, "a", a, content)
}

// An earlier version kept the images of a server with PostgreSQL in the data directory. The
// first start takes them into the database.
func TestImagesOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	file, dir := postgresConfig(t, server.URL("postgres")), filepath.Join(t.TempDir(), "data")
	p := servePostgres(t, file, dir)
	if status, _, body := createSession(t, p.URL, "a"); status != 201 {
		t.Fatalf("%d %s", status, body)
	}
	var list []loquat.Asset
	var contents [][]byte
	for i := range 5 {
		content := binary.Photo(uint64(i), i<<19+100)
		contents, list = append(contents, content), append(list, mustUpload(t, p.URL, "a", content))
	}
	p.Kill(t)
	if err := server.Exec("postgres", "DELETE FROM image_objects"); err != nil {
		t.Fatal(err)
	}
	for i, a := range list {
		path := filepath.Join(dir, "assets", a.SHA256[:2], a.SHA256)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, contents[i], 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p = servePostgres(t, file, dir)
	for i, a := range list {
		wantImage(t, p.URL, "a", a, contents[i])
	}
	p.Kill(t)
	if err := os.RemoveAll(filepath.Join(dir, "assets")); err != nil {
		t.Fatal(err)
	}
	p = servePostgres(t, file, dir)
	for i, a := range list {
		wantImage(t, p.URL, "a", a, contents[i])
	}
}
