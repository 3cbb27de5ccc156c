// Package assettest contains the tests that every store of images must pass.
package assettest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"image"
	"image/png"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"pgregory.net/rapid"

	"loquat/internal/asset"
)

// Place is where the images of a test are.
type Place struct {
	// Open opens the place. Each call returns what another process would get.
	Open func(t *testing.T) asset.Store
	// Name returns a new name for the bytes of an upload, of which only SHA256 and Size count.
	Name func(t *testing.T, u *asset.Upload) string
	// Remote is true if a Put that failed may still be carried out, also after Remove.
	Remote bool
}

// Run runs all tests. place is called once per test.
func Run(t *testing.T, place func(t *testing.T) Place) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Place)
	}{
		{"stored bytes are found by all", storedBytes},
		{"parts of images", parts},
		{"a name that does not exist", missing},
		{"bytes of another size", otherSize},
		{"removed bytes", removed},
		{"a put that fails", failedPut},
		{"many at once", atOnce},
		{"a large image takes little memory", largeImage},
		{"the place can be used", usable},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, place(t)) })
	}
}

// PNG returns an image of this many bytes, which differs from those of other numbers. The bytes
// that follow the image itself are random.
func PNG(t testing.TB, number, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, number%1000+1, number/1000+1))); err != nil {
		t.Fatal(err)
	}
	rest := make([]byte, max(0, size-b.Len()))
	random := rand.NewChaCha8([32]byte{byte(number)})
	_, _ = random.Read(rest)
	return append(b.Bytes(), rest...)
}

// Receive returns an upload with these bytes.
func Receive(t testing.TB, content []byte) *asset.Upload {
	t.Helper()
	spool, err := asset.OpenSpool(t.TempDir(), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	u, err := spool.Receive(bytes.NewReader(content), "")
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func put(t *testing.T, s asset.Store, p Place, content []byte) (name string) {
	t.Helper()
	u := Receive(t, content)
	name = p.Name(t, u)
	if err := s.Put(t.Context(), name, u); err != nil {
		t.Fatal(err)
	}
	return name
}

func wantBytes(t *testing.T, s asset.Store, name string, want []byte) {
	t.Helper()
	f, err := s.Open(t.Context(), name, int64(len(want)))
	if err != nil {
		t.Errorf("open %s: %v", name, err)
		return
	}
	got, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(want), err)
	}
}

func wantMissing(t *testing.T, s asset.Store, name string, size int) {
	t.Helper()
	if f, err := s.Open(t.Context(), name, int64(size)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s, which does not exist: %v, %v", name, f, err)
	}
}

func storedBytes(t *testing.T, p Place) {
	s := p.Open(t)
	images := map[string][]byte{}
	for i, size := range []int{0, 100, 32<<10 + 1, 512 << 10, 1 << 20, 3<<20 + 5} {
		content := PNG(t, i, size)
		images[put(t, s, p, content)] = content
	}
	other := p.Open(t)
	for name, content := range images {
		wantBytes(t, other, name, content)
		if err := other.Put(t.Context(), name, Receive(t, content)); err != nil { // a second time
			t.Error(err)
		}
		wantBytes(t, s, name, content)
	}
}

// parts reads at random offsets and compares with a reader of the same bytes in memory.
func parts(t *testing.T, p Place) {
	content := PNG(t, 1, 1<<20+777)
	s := p.Open(t)
	name := put(t, s, p, content)
	rapid.Check(t, func(rt *rapid.T) {
		f, err := s.Open(t.Context(), name, int64(len(content)))
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		model := bytes.NewReader(content)
		for range rapid.IntRange(1, 5).Draw(rt, "steps") {
			whence := rapid.IntRange(0, 2).Draw(rt, "whence")
			offset := rapid.Int64Range(-10, int64(len(content))+10).Draw(rt, "offset")
			if whence != io.SeekStart {
				offset = rapid.Int64Range(-int64(len(content)), 10).Draw(rt, "offset")
			}
			got, gotErr := f.Seek(offset, whence)
			want, wantErr := model.Seek(offset, whence)
			if (gotErr == nil) != (wantErr == nil) || gotErr == nil && got != want {
				rt.Fatalf("seek %d from %d: %d, %v; want %d, %v", offset, whence, got, gotErr, want, wantErr)
			}
			n := rapid.IntRange(0, 70<<10).Draw(rt, "length")
			a, b := make([]byte, n), make([]byte, n)
			gotN, gotErr := io.ReadFull(f, a)
			wantN, wantErr := io.ReadFull(model, b)
			if gotN != wantN || gotErr != wantErr || !bytes.Equal(a[:gotN], b[:wantN]) {
				rt.Fatalf("read %d bytes: %d, %v; want %d, %v", n, gotN, gotErr, wantN, wantErr)
			}
		}
	})
	f, err := s.Open(t.Context(), name, int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := iotest.TestReader(f, content); err != nil {
		t.Error(err)
	}
}

func missing(t *testing.T, p Place) {
	wantMissing(t, p.Open(t), p.Name(t, &asset.Upload{SHA256: hex.EncodeToString(make([]byte, 32)), Size: 10}), 10)
}

func otherSize(t *testing.T, p Place) {
	content := PNG(t, 1, 5000)
	s := p.Open(t)
	name := put(t, s, p, content)
	for _, size := range []int64{0, int64(len(content)) - 1, int64(len(content)) + 1, 10 << 20} {
		if f, err := s.Open(t.Context(), name, size); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("opened with %d bytes: %v, %v", size, f, err)
		}
	}
}

func removed(t *testing.T, p Place) {
	s := p.Open(t)
	content, kept := PNG(t, 1, 2<<20), PNG(t, 2, 2<<20)
	name, other := put(t, s, p, content), put(t, s, p, kept)
	for range 2 { // the second time, there is nothing
		if err := s.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
		wantMissing(t, p.Open(t), name, len(content))
	}
	wantBytes(t, s, other, kept)
}

// failedPut ends a Put early. Either it succeeded, or nothing is visible; then it can be repeated
// or removed. In a remote place all bytes may be visible too, at any time.
func failedPut(t *testing.T, p Place) {
	s := p.Open(t)
	content := PNG(t, 1, 4<<20)
	for i := range 8 {
		u := Receive(t, content)
		name := p.Name(t, u)
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*4*time.Millisecond)
		err := s.Put(ctx, name, u)
		cancel()
		if err == nil || p.Remote && visible(t, s, name, len(content)) {
			wantBytes(t, s, name, content)
		} else if !p.Remote {
			wantMissing(t, s, name, len(content))
		}
		if i%2 == 0 {
			if err := s.Put(t.Context(), name, Receive(t, content)); err != nil {
				t.Error(err)
			}
			wantBytes(t, s, name, content)
		}
		if err := s.Remove(t.Context(), name); err != nil {
			t.Error(err)
		}
		if p.Remote {
			removeLate(t, s, name, content)
		}
		wantMissing(t, s, name, len(content))
	}
	u := Receive(t, content)
	name := p.Name(t, u)
	u.Discard()
	if err := s.Put(t.Context(), name, u); err == nil {
		t.Error("an upload without its file was stored")
	}
	wantMissing(t, s, name, len(content))
}

// visible reports whether Open finds a name.
func visible(t *testing.T, s asset.Store, name string, size int) bool {
	t.Helper()
	f, err := s.Open(t.Context(), name, int64(size))
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Error(err)
	}
	return true
}

// removeLate removes the bytes of a Put that is carried out after it was removed, until there have
// been none for a while.
func removeLate(t *testing.T, s asset.Store, name string, content []byte) {
	t.Helper()
	const while, atMost = 5, 200 // looks
	for looks, without := 0, 0; without < while; looks++ {
		if looks == atMost {
			t.Fatalf("%s appears again and again", name)
		}
		time.Sleep(10 * time.Millisecond)
		if without++; visible(t, s, name, len(content)) {
			wantBytes(t, s, name, content)
			if err := s.Remove(t.Context(), name); err != nil {
				t.Error(err)
			}
			without = 0
		}
	}
}

// atOnce stores some images under several names each, while others open them: they find nothing
// or all bytes.
func atOnce(t *testing.T, p Place) {
	s, other := p.Open(t), p.Open(t)
	var all sync.WaitGroup
	for i := range 6 {
		content := PNG(t, i, 700<<10)
		u := Receive(t, content)
		name := p.Name(t, u)
		var stored atomic.Bool
		for range 2 {
			again := Receive(t, content)
			all.Go(func() {
				if err := s.Put(t.Context(), name, again); err != nil {
					t.Error(err)
				}
				stored.Store(true)
			})
		}
		all.Go(func() {
			for done := false; !done; {
				done = stored.Load()
				f, err := other.Open(t.Context(), name, int64(len(content)))
				if err != nil {
					if done || !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("open %s: %v", name, err)
					}
					continue
				}
				got, err := io.ReadAll(f)
				if err = errors.Join(err, f.Close()); err != nil || !bytes.Equal(got, content) {
					t.Errorf("%s has %d bytes, want %d: %v", name, len(got), len(content), err)
				}
			}
		})
	}
	all.Wait()
}

// largeImage stores and reads an image of 50 MB and measures the memory that this takes.
func largeImage(t *testing.T, p Place) {
	if testing.Short() {
		t.Skip("it writes 50 MB")
	}
	const size, allowed = 50 << 20, 20 << 20
	s := p.Open(t)
	content := PNG(t, 1, size)
	u := Receive(t, content)
	path := filepath.Join(t.TempDir(), "copy")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	name := p.Name(t, u)
	content = nil
	stop := peakMemory()
	if err := s.Put(t.Context(), name, u); err != nil {
		t.Fatal(err)
	}
	f, err := s.Open(t.Context(), name, size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer want.Close()
	a, b := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := 0; ; {
		n, err := io.ReadFull(f, a)
		m, _ := io.ReadFull(want, b)
		at += n
		if n != m || !bytes.Equal(a[:n], b[:m]) {
			t.Fatalf("differs before byte %d: %v", at, err)
		}
		if err != nil {
			if at != size {
				t.Fatalf("ends at byte %d: %v", at, err)
			}
			break
		}
	}
	if peak := stop(); peak > allowed {
		t.Errorf("took %d MiB of memory, at most %d are allowed", peak>>20, allowed>>20)
	} else {
		t.Logf("took %d MiB of memory", peak>>20)
	}
}

// peakMemory measures how far the heap grows until the result is called.
func peakMemory() (stop func() uint64) {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	before, peak := m.HeapAlloc, uint64(0)
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			runtime.ReadMemStats(&m)
			if m.HeapAlloc > before {
				peak = max(peak, m.HeapAlloc-before)
			}
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(end)
		<-ended
		return peak
	}
}

func usable(t *testing.T, p Place) {
	if err := p.Open(t).Check(t.Context()); err != nil {
		t.Error(err)
	}
}
