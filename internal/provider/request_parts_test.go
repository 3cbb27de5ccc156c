package provider

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"loquat"
	"loquat/internal/provider/providertest"
)

// shelf holds stored images by asset_id.
type shelf struct {
	mu     sync.Mutex
	images map[string][]byte
	opened atomic.Int64
	open   atomic.Int64 // at the moment
}

func (s *shelf) OpenAsset(_ context.Context, id string) (loquat.Asset, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	content, ok := s.images[id]
	switch {
	case !ok:
		return loquat.Asset{}, nil, loquat.Errorf(loquat.CodeNotFound, "no asset %s", id)
	case content == nil:
		return loquat.Asset{}, nil, errors.New("the disk is broken")
	}
	s.opened.Add(1)
	s.open.Add(1)
	return loquat.Asset{AssetID: id, MediaType: "image/png", Size: int64(len(content))}, &book{bytes.NewReader(content), s}, nil
}

type book struct {
	io.Reader
	shelf *shelf
}

func (b *book) Close() error { b.shelf.open.Add(-1); return nil }

func withImages(ids ...string) []loquat.Message {
	var list []map[string]string
	for _, id := range ids {
		list = append(list, map[string]string{"type": "image", "asset_id": id})
	}
	return []loquat.Message{{Role: "user", Content: "see", Metadata: loquat.Object{}.Set("attachments", list)}}
}

// The body is the expected JSON for all sizes of images and reads.
func TestStoredImagesAreInlined(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &shelf{images: map[string][]byte{}}
		var ids []string
		want := `[{"type":"text","text":"see"}`
		for i := range rapid.IntRange(1, 4).Draw(rt, "images") {
			size := rapid.OneOf(rapid.IntRange(1, 10), rapid.IntRange(encodePiece-3, encodePiece+3), rapid.IntRange(1, 3*encodePiece)).Draw(rt, "size")
			content := bytes.Repeat([]byte{byte(i), 1, 254}, size/3+1)[:size]
			id := fmt.Sprint("a", i)
			s.images[id], ids = content, append(ids, id)
			want += `,{"type":"image_url","image_url":{"url":"data:image/png;base64,` + base64.StdEncoding.EncodeToString(content) + `"}}`
		}
		set, err := readSettings(configWith(""))
		if err != nil {
			rt.Fatal(err)
		}
		b, err := set.encode(t.Context(), loquat.LLMRequest{Messages: withImages(ids...), OpenAsset: s.OpenAsset}, nil)
		if err != nil {
			rt.Fatal(err)
		}
		for range 2 {
			r := b.reader(func() {})
			var in io.Reader = r
			if rapid.Bool().Draw(rt, "in halves") {
				in = iotest.HalfReader(r)
			}
			raw, err := io.ReadAll(in)
			if err != nil || int64(len(raw)) != b.size {
				rt.Fatalf("%d bytes of %d, %v", len(raw), b.size, err)
			}
			var body struct {
				Messages []struct{ Content json.RawMessage }
			}
			if err := json.Unmarshal(raw, &body); err != nil || string(body.Messages[0].Content) != want+"]" {
				rt.Fatalf("%v: got %.200s", err, raw)
			}
			if err := r.Close(); err != nil {
				rt.Fatal(err)
			}
		}
		if n := s.open.Load(); n != 0 {
			rt.Fatalf("%d images were left open", n)
		}
	})
}

func TestImagesThatAreNotThere(t *testing.T) {
	s := &shelf{images: map[string][]byte{"broken": nil}}
	body := sent(t, loquat.LLMRequest{Config: configWith(""), Messages: withImages("gone", "broken"), OpenAsset: s.OpenAsset})
	want := `[{"role":"user","content":[{"type":"text","text":"see"},{"type":"text","text":"` + noteLost + `"},{"type":"text","text":"` + noteUnresolved + `"}]}]`
	if !providertest.SameJSON(body["messages"], json.RawMessage(want)) {
		t.Errorf("got %s\nwant %s", body["messages"], want)
	}
}

// A retry sends the images again with a known length, and closes all of them.
func TestStoredImagesAreSentAgain(t *testing.T) {
	content := bytes.Repeat([]byte("pixel"), 100_000)
	s := &shelf{images: map[string][]byte{"a": content}}
	want := "data:image/png;base64," + base64.StdEncoding.EncodeToString(content)
	calls := 0
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		raw, err := io.ReadAll(r.Body)
		if err != nil || r.ContentLength != int64(len(raw)) || !bytes.Contains(raw, []byte(want)) {
			t.Errorf("call %d: %d bytes, Content-Length %d, %v", calls, len(raw), r.ContentLength, err)
		}
		if calls == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, `{"choices":[{"message":{"content":"seen"}}]}`)
	}))
	defer backend.Close()
	c := providertest.Config(backend.URL)
	c["retry_on_status"] = json.RawMessage(`{"503":[0]}`)
	p := New(Options{})
	defer p.Close()
	said := ""
	for chunk, err := range p.Chat(t.Context(), loquat.LLMRequest{Config: c, Messages: withImages("a"), OpenAsset: s.OpenAsset}) {
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Reply != nil {
			said = chunk.Reply.Content
		}
	}
	if said != "seen" || calls != 2 || s.open.Load() != 0 {
		t.Errorf("%q after %d calls, %d images left open", said, calls, s.open.Load())
	}
}

// An image that is shorter than announced fails the call, because Content-Length was already sent.
func TestImageThatShrank(t *testing.T) {
	f := &file{size: 10, open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("short")), nil }}
	var b body
	b.addFile(f)
	r := b.reader(func() {})
	if _, err := io.ReadAll(r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("a closed body can be read")
	}
}
