package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/superfly/ltx"

	"loquat/internal/store/sqlite"
)

const (
	// walHeader is where the frames of a write-ahead log begin.
	walHeader = 32
	// frameHeader is the size of a frame without its page.
	frameHeader = 24
	// smallFile is the most that is kept in memory of a file that is written or read.
	smallFile = 8 << 20
)

// encode writes a file of the pages of a tracker's transaction. Its header says where the tracker
// stands, so that a later process can resume there. The checksum of the log takes the place of LTX's
// node id, which nothing else here needs.
func encode(ctx context.Context, w io.Writer, f file, pages []uint32, t *sqlite.Tracker) error {
	commit, pageSize := t.Size()
	at := t.Position()
	enc, err := ltx.NewEncoder(w)
	if err != nil {
		return err
	}
	err = enc.EncodeHeader(ltx.Header{
		Version: ltx.Version, Flags: ltx.HeaderFlagNoChecksum, PageSize: pageSize, Commit: commit,
		MinTXID: ltx.TXID(f.min), MaxTXID: ltx.TXID(f.max), Timestamp: f.max,
		WALOffset: walHeader, WALSize: int64(at.Frames) * int64(frameHeader+pageSize),
		WALSalt1: uint32(at.Salts >> 32), WALSalt2: uint32(at.Salts), NodeID: at.Checksum,
	})
	if err != nil {
		return err
	}
	for _, page := range pages {
		if page > commit || page == ltx.LockPgno(pageSize) {
			continue
		}
		data, err := t.Page(ctx, page)
		if err != nil {
			return err
		}
		if err := enc.EncodePage(ltx.PageHeader{Pgno: page}, data); err != nil {
			return err
		}
	}
	return enc.Close()
}

// positionOf returns the place at which the tracker stood that wrote a file, and the number of pages.
func positionOf(h ltx.Header) (p sqlite.Position, commit uint32, ok bool) {
	if h.WALOffset != walHeader {
		return p, 0, false // a file that was merged from others
	}
	p.Salts = uint64(h.WALSalt1)<<32 | uint64(h.WALSalt2)
	p.Frames = uint32(h.WALSize / int64(frameHeader+h.PageSize))
	p.Checksum = h.NodeID
	return p, h.Commit, true
}

// allPages returns the numbers of so many pages.
func allPages(n uint32) []uint32 {
	pages := make([]uint32, n)
	for i := range pages {
		pages[i] = uint32(i) + 1
	}
	return pages
}

// putStream stores a file that write writes. It returns the size of the file.
func putStream(ctx context.Context, place Place, name string, write func(io.Writer) error) (size int64, err error) {
	in, out := io.Pipe()
	written := make(chan int64, 1)
	go func() {
		w := &countingWriter{w: out}
		out.CloseWithError(write(w)) // nil becomes io.EOF
		written <- w.n
	}()
	defer func() {
		in.CloseWithError(errors.New("the file could not be stored")) // ends write
		size = <-written
	}()
	var start bytes.Buffer
	switch _, err := io.CopyN(&start, in, smallFile); {
	case errors.Is(err, io.EOF):
		return 0, place.Put(ctx, name, int64(start.Len()), bytes.NewReader(start.Bytes())) // which Put may read again
	case err != nil:
		return 0, err
	}
	return 0, place.Put(ctx, name, -1, io.MultiReader(&start, in))
}

// countingWriter counts what is written.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// damagedError reports that a file in a place is missing or not what was written.
type damagedError struct {
	file file
	err  error
}

func (e *damagedError) Error() string {
	return fmt.Sprintf("%s is damaged: %v", e.file.name(), e.err)
}

func (e *damagedError) Unwrap() error { return e.err }

// readPages calls fn with the pages of a file, whose bytes fn must not keep. It verifies the checksum
// of the file, but only after the last page.
func readPages(ctx context.Context, place Place, f file, fn func(h ltx.Header, page uint32, data []byte) error) (ltx.Header, error) {
	in, err := open(ctx, place, f)
	if err != nil {
		return ltx.Header{}, err
	}
	defer in.Close()
	dec := ltx.NewDecoder(in)
	dec.SetRetainPageIndex(false)
	if err := dec.DecodeHeader(); err != nil {
		return ltx.Header{}, &damagedError{f, err}
	}
	h := dec.Header()
	if h.MinTXID != ltx.TXID(f.min) || h.MaxTXID != ltx.TXID(f.max) {
		return h, &damagedError{f, fmt.Errorf("it is the file %s", ltx.FormatFilename(h.MinTXID, h.MaxTXID))}
	}
	data := make([]byte, h.PageSize)
	for {
		var page ltx.PageHeader
		err := dec.DecodePage(&page, data)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && page.Pgno > h.Commit {
			err = fmt.Errorf("it has page %d of %d", page.Pgno, h.Commit)
		}
		if err != nil {
			return h, readError(ctx, f, in, err)
		}
		if err := fn(h, page.Pgno, data); err != nil {
			return h, err
		}
	}
	if err := dec.Close(); err != nil {
		return h, readError(ctx, f, in, err)
	}
	return h, nil
}

// source is a file of a place that is read. It remembers why reading failed.
type source struct {
	io.Reader
	io.Closer
	failed error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.failed = err
	}
	return n, err
}

// errMissing reports that a file is not there, perhaps because it was merged into another one.
var errMissing = errors.New("it is missing")

// open opens a file of pages. A small one is read at once, so that many can be open.
func open(ctx context.Context, place Place, f file) (*source, error) {
	in, err := place.Get(ctx, f.name())
	if errors.Is(err, os.ErrNotExist) {
		return nil, &damagedError{f, errMissing}
	}
	if err != nil {
		return nil, err
	}
	if f.size > smallFile/8 {
		return &source{Reader: in, Closer: in}, nil
	}
	b, err := io.ReadAll(io.LimitReader(in, smallFile))
	if err := errors.Join(err, in.Close()); err != nil {
		return nil, err
	}
	return &source{Reader: bytes.NewReader(b), Closer: io.NopCloser(nil)}, nil
}

// readError returns the error of a file whose bytes cannot be decoded, or could not be read.
func readError(ctx context.Context, f file, in *source, err error) error {
	if ctx.Err() != nil || in.failed != nil {
		return errors.Join(fmt.Errorf("read %s", f.name()), ctx.Err(), in.failed)
	}
	return &damagedError{f, err}
}
