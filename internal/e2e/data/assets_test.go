package data_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

func hashOf(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// upload sends an image and returns what became of it.
func upload(ctx context.Context, url, session string, content io.Reader) (a loquat.Asset, status int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/sessions/"+session+"/assets", content)
	if err != nil {
		return a, 0, err
	}
	req.Header.Set("Content-Type", "image/png")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return a, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return a, resp.StatusCode, nil
	}
	return a, resp.StatusCode, json.NewDecoder(resp.Body).Decode(&a)
}

// filesBelow returns the names and the size of all files of a directory.
func filesBelow(t *testing.T, dir string) (names []string, size int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		names, size = append(names, e.Name()), size+info.Size()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names, size
}

// seeingBackend notes the hashes of the inline images that it gets, in their order.
type seeingBackend struct {
	mu   sync.Mutex
	seen []string
	size int64
	fail error
}

func (b *seeingBackend) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	seen, err := inlineImages(r.Body)
	b.mu.Lock()
	b.seen, b.size, b.fail = seen, r.ContentLength, err
	b.mu.Unlock()
	fmt.Fprint(w, `{"choices":[{"message":{"content":"I have seen them."},"finish_reason":"stop"}]}`)
}

func inlineImages(r io.Reader) (hashes []string, err error) {
	for dec := json.NewDecoder(r); ; {
		token, err := dec.Token()
		if err == io.EOF {
			return hashes, nil
		}
		if err != nil {
			return hashes, err
		}
		text, _ := token.(string)
		data, ok := strings.CutPrefix(text, "data:image/png;base64,")
		if !ok {
			continue
		}
		image, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return hashes, err
		}
		hashes = append(hashes, hashOf(image))
	}
}

// Seventy-five photos of 3 MB in one session: the page of messages stays small, each is
// kept once, the backend gets all of them inline, and the server's memory does not grow
// with them.
func TestManyPhotos(t *testing.T) {
	if testing.Short() {
		t.Skip("long: sends 300 MB")
	}
	const photos, photoBytes, mayGrow = 75, 3_000_000, 64 << 20
	backend := &seeingBackend{}
	hearing := httptest.NewServer(backend)
	defer hearing.Close()
	data := t.TempDir()
	server := binary.Start(t, nil, "serve", "--config", configFor(t, hearing.URL), "--listen", "127.0.0.1:0", "--data", data)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	c, err := client.New(server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.CloseIdleConnections()
	session := binary.CreateSession(ctx, t, c, nil).SessionID
	idle := binary.Memory(t, server, "VmRSS")

	var want []string
	var bytesOfAll int64
	for i := range photos {
		content := binary.Photo(uint64(i), photoBytes)
		a, status, err := upload(ctx, server.URL, session, bytes.NewReader(content))
		if err != nil || status != http.StatusCreated {
			t.Fatalf("photo %d: %d, %v", i, status, err)
		}
		if i%25 == 0 { // the same again is the same file
			if again, status, err := upload(ctx, server.URL, session, bytes.NewReader(content)); err != nil || status != http.StatusCreated || again.SHA256 != a.SHA256 {
				t.Fatalf("photo %d again: %d, %+v, %v", i, status, again, err)
			}
		}
		want, bytesOfAll = append(want, a.SHA256), bytesOfAll+int64(len(content))
		attachment := json.RawMessage(`{"type":"image","asset_id":"` + a.AssetID + `"}`)
		if _, err := c.AppendMessage(ctx, session, loquat.NewMessage{Role: loquat.RoleUser, Content: fmt.Sprint("photo ", i), Attachments: []json.RawMessage{attachment}}); err != nil {
			t.Fatal(err)
		}
	}
	binary.FollowRequest(ctx, t, c, sendText(ctx, t, c, session, "what do they show?"))
	peak := binary.Memory(t, server, "VmHWM")

	backend.mu.Lock()
	defer backend.mu.Unlock()
	if backend.fail != nil || !slices.Equal(backend.seen, want) {
		t.Errorf("the backend got %d of %d photos: %v", len(backend.seen), len(want), backend.fail)
	}
	if names, size := filesBelow(t, filepath.Join(data, "assets")); len(names) != photos || size != bytesOfAll {
		t.Errorf("%d files of %d bytes for %d photos of %d", len(names), size, photos, bytesOfAll)
	}
	_, page := getBody(ctx, t, server.URL+"/sessions/"+session+"/messages")
	if len(page) > 100_000 {
		t.Errorf("the page of messages has %d bytes", len(page))
	}
	if idle > 0 && peak-idle > mayGrow {
		t.Errorf("%d MiB when idle, %d MiB at the most", idle>>20, peak>>20)
	}
	t.Logf("%d photos, a request of %d MB, a page of %d bytes, %d MiB when idle, %d MiB at the most", photos, backend.size/1_000_000, len(page), idle>>20, peak>>20)
}

// configFor is a configuration file with one backend.
func configFor(t *testing.T, backend string) string {
	t.Helper()
	text := `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m", "base_url": "` + backend + `/v1"}}}`
	return binary.WriteConfig(t, text)
}

// After kill -9 in the middle of uploads, those that were acknowledged are there, and of
// the others nothing stays but files that the next start removes.
func TestKilledWhileUploading(t *testing.T) {
	if testing.Short() {
		t.Skip("long: kills servers")
	}
	data := t.TempDir()
	config := configFor(t, "http://127.0.0.1:1")
	stored := map[string]string{} // hash by asset_id
	for round := range 4 {
		server := binary.Start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data", data)
		if round == 0 {
			c, err := client.New(server.URL, client.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.CreateSession(t.Context(), loquat.NewSession{SessionID: "s"}); err != nil {
				t.Fatal(err)
			}
			c.CloseIdleConnections()
		}
		for id, hash := range stored {
			status, got := getBody(t.Context(), t, server.URL+"/sessions/s/assets/"+id)
			if status != http.StatusOK || hashOf(got) != hash {
				t.Errorf("round %d: acknowledged asset %s: %d with %d bytes", round, id, status, len(got))
			}
		}
		uploadUntilKilled(t, server, uint64(round), stored)
		// What a crash between a file and its row leaves.
		stray := hashOf([]byte{byte(round)})
		if err := os.MkdirAll(filepath.Join(data, "assets", stray[:2]), 0o700); err != nil {
			t.Fatal(err)
		}
		binary.WriteFile(t, filepath.Join(data, "assets", stray[:2], stray), "stray")
	}
	binary.Start(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data", data)
	if names, _ := filesBelow(t, filepath.Join(data, "assets", "incoming")); len(names) > 0 {
		t.Errorf("left of uploads that were cut: %q", names)
	}
	for began := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		names, _ := filesBelow(t, filepath.Join(data, "assets"))
		strays := slices.DeleteFunc(names, func(name string) bool {
			return !slices.ContainsFunc([]byte{0, 1, 2, 3}, func(b byte) bool { return name == hashOf([]byte{b}) })
		})
		if len(strays) == 0 {
			break
		}
		if time.Since(began) > 20*time.Second {
			t.Fatalf("files without an owner stay: %q", strays)
		}
	}
	t.Logf("%d acknowledged uploads over 4 kills", len(stored))
}

// uploadUntilKilled uploads side by side, kills the server after some were acknowledged,
// and adds those to stored.
func uploadUntilKilled(t *testing.T, server *binary.Process, seed uint64, stored map[string]string) {
	t.Helper()
	acknowledged := make(chan [2]string, 1000)
	var uploads sync.WaitGroup
	for worker := range uint64(4) {
		uploads.Go(func() {
			for i := uint64(0); ; i++ {
				content := binary.Photo(seed<<32|worker<<16|i, 200_000)
				a, status, err := upload(t.Context(), server.URL, "s", bytes.NewReader(content))
				if err != nil {
					return // it was killed
				}
				if status != http.StatusCreated || a.SHA256 != hashOf(content) {
					t.Errorf("an upload is answered with %d and %+v", status, a)
					return
				}
				acknowledged <- [2]string{a.AssetID, a.SHA256}
			}
		})
	}
	add := func(a [2]string) { stored[a[0]] = a[1] }
	for range 20 {
		select {
		case a := <-acknowledged:
			add(a)
		case <-time.After(20 * time.Second):
			t.Error("no upload is acknowledged")
		}
	}
	_ = server.Cmd.Process.Kill()
	_ = server.Cmd.Wait()
	uploads.Wait()
	close(acknowledged)
	for a := range acknowledged {
		add(a)
	}
}
