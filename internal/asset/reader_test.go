package asset_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"loquat/internal/asset"
)

// closeCounter counts how many readers are open.
type closeCounter struct {
	io.Reader
	open *int
}

func (c closeCounter) Close() error { *c.open--; return nil }

// The bytes come in parts, break off at random places and without bytes, and the reader still
// returns all of them.
func TestReaderGoesOnWhereBytesBreakOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		content := make([]byte, 10_000)
		for i := range content {
			content[i] = byte(rand.Int())
		}
		open, opened := 0, 0
		broken := errors.New("broken")
		r := asset.NewReader(t.Context(), int64(len(content)), func(_ context.Context, at int64) (io.ReadCloser, error) {
			opened++
			if opened%3 == 0 {
				return nil, broken
			}
			open++
			var end io.Reader = iotest.ErrReader(broken)
			if opened%2 == 0 {
				end = bytes.NewReader(nil)
			}
			part := content[at:min(len(content), int(at)+1+rand.IntN(500))]
			return closeCounter{io.MultiReader(bytes.NewReader(part), end), &open}, nil
		})
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content) {
			t.Errorf("read %d bytes: %v", len(got), err)
		}
		if _, err := r.Seek(-100, io.SeekEnd); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, content[9900:]) {
			t.Errorf("the end has %d bytes: %v", len(got), err)
		}
		if _, err := r.Seek(0, io.SeekStart); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil || open != 0 {
			t.Errorf("%d readers are still open: %v", open, err)
		}
		if _, err := r.Read(make([]byte, 1)); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read after the close: %v", err)
		}
	})
}

// The reader gives up when the bytes end for good, do not exist any more, or stall.
func TestReaderGivesUp(t *testing.T) {
	for name, c := range map[string]struct {
		open func(context.Context) (io.ReadCloser, error)
		want error
		most time.Duration
	}{
		"they break off again and again": {func(context.Context) (io.ReadCloser, error) { return nil, io.ErrClosedPipe }, io.ErrClosedPipe, time.Second},
		"they end too early":             {func(context.Context) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(nil)), nil }, io.ErrUnexpectedEOF, time.Second},
		"they were removed":              {func(context.Context) (io.ReadCloser, error) { return nil, fs.ErrNotExist }, fs.ErrNotExist, 0},
		"they stall": {func(ctx context.Context) (io.ReadCloser, error) {
			return io.NopCloser(readerFunc(func([]byte) (int, error) { <-ctx.Done(); return 0, ctx.Err() })), nil
		}, context.Canceled, 2 * time.Minute},
		"the opening stalls": {func(ctx context.Context) (io.ReadCloser, error) { <-ctx.Done(); return nil, ctx.Err() }, context.Canceled, 2 * time.Minute},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			r := asset.NewReader(t.Context(), 100, func(ctx context.Context, _ int64) (io.ReadCloser, error) { return c.open(ctx) })
			if _, err := r.Read(make([]byte, 10)); !errors.Is(err, c.want) {
				t.Errorf("%s: %v", name, err)
			}
			if took := time.Since(began); took > c.most {
				t.Errorf("%s: it took %s", name, took)
			}
			r.Close()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := asset.NewReader(ctx, 100, func(ctx context.Context, _ int64) (io.ReadCloser, error) { <-ctx.Done(); return nil, ctx.Err() })
		began := time.Now()
		time.AfterFunc(time.Second, cancel)
		if _, err := r.Read(make([]byte, 10)); !errors.Is(err, context.Canceled) || time.Since(began) != time.Second {
			t.Errorf("a caller that gave up: %v after %s", err, time.Since(began))
		}
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
