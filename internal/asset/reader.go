package asset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

const (
	// idleTimeout is how long a store may send no bytes of an image.
	idleTimeout = 30 * time.Second
	// maxBreaks is how often in a row the bytes may break off without a new byte.
	maxBreaks = 3
)

// reader reads an image from a place that gives its bytes from any offset on.
type reader struct {
	ctx  context.Context
	size int64
	open func(ctx context.Context, offset int64) (io.ReadCloser, error)

	at      int64
	closed  bool
	current io.ReadCloser // the bytes from at on; nil before the first read and after a seek
	gave    bool          // current gave a byte
	cancel  context.CancelFunc
}

// NewReader returns a reader of an image of size bytes. open returns its bytes, or a part of
// them, from an offset on, which are read while its ctx lasts. If the bytes break off, the reader
// opens them again where they broke off.
func NewReader(ctx context.Context, size int64, open func(ctx context.Context, offset int64) (io.ReadCloser, error)) io.ReadSeekCloser {
	return &reader{ctx: ctx, size: size, open: open}
}

func (r *reader) Read(p []byte) (int, error) {
	if r.closed {
		return 0, fs.ErrClosed
	}
	if r.at >= r.size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	for breaks := 0; ; {
		n, err := r.readSome(p[:min(int64(len(p)), r.size-r.at)])
		r.at += int64(n)
		if n > 0 {
			r.gave = true
			return n, nil
		}
		ended := err == io.EOF && r.gave
		r.release()
		if ended { // current had only a part of the bytes
			continue
		}
		if r.ctx.Err() != nil {
			return 0, r.ctx.Err()
		}
		if breaks++; errors.Is(err, fs.ErrNotExist) || breaks >= maxBreaks {
			return 0, fmt.Errorf("read an image at byte %d: %w", r.at, unexpected(err))
		}
		select {
		case <-time.After(time.Duration(breaks) * 100 * time.Millisecond):
		case <-r.ctx.Done():
		}
	}
}

// readSome reads some bytes at r.at, or returns an error.
func (r *reader) readSome(p []byte) (n int, err error) {
	if r.current == nil {
		ctx, cancel := context.WithCancel(r.ctx)
		idle := time.AfterFunc(idleTimeout, cancel)
		r.current, err = r.open(ctx, r.at)
		if !idle.Stop() && err == nil {
			err = errors.Join(ctx.Err(), r.current.Close())
		}
		if err != nil {
			cancel()
			r.current = nil
			return 0, err
		}
		r.cancel, r.gave = cancel, false
	}
	idle := time.AfterFunc(idleTimeout, r.cancel)
	defer idle.Stop()
	for n == 0 && err == nil {
		n, err = r.current.Read(p)
	}
	return n, err
}

func (r *reader) release() {
	if r.current == nil {
		return
	}
	r.cancel()
	_ = r.current.Close()
	r.current = nil
}

// Seek implements io.Seeker. It asks nobody.
func (r *reader) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += r.at
	case io.SeekEnd:
		offset += r.size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek to byte %d of an image", offset)
	}
	if offset != r.at {
		r.release()
		r.at = offset
	}
	return offset, nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	r.release()
	r.closed = true
	return nil
}

// unexpected returns an error of a read that had to give bytes.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
