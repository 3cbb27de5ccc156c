package provider

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"loquat"
)

// body holds an encoded request in parts. An inline image is a separate part that points
// into the session's messages. A stored image is read and encoded only while it is sent.
// So no image is copied, and a retry can send the same body again.
type body struct {
	parts []part
	size  int64
}

// part holds bytes, or a file that is sent in base64.
type part struct {
	bytes []byte
	file  *file
}

// file describes a stored image.
type file struct {
	mediaType string
	size      int64 // of the image, not of its base64
	open      func() (io.ReadCloser, error)
}

func (b *body) add(bytes []byte) {
	b.parts = append(b.parts, part{bytes: bytes})
	b.size += int64(len(bytes))
}

func (b *body) addFile(f *file) {
	b.parts = append(b.parts, part{file: f})
	b.size += (f.size + 2) / 3 * 4
}

// smallBody is the size in bytes up to which a body without files is sent from memory in one piece. The
// transport sends such a body together with the head of its request, and any other after the head.
const smallBody = 16 << 10

// reader returns the body from its start. It calls onRead at every read of a body that is not small, because
// a read shows that the backend accepts data.
func (b *body) reader(onRead func()) io.ReadCloser {
	if b.size > smallBody || slices.ContainsFunc(b.parts, func(p part) bool { return p.file != nil }) {
		return &bodyReader{parts: b.parts, onRead: onRead}
	}
	whole := make([]byte, 0, b.size)
	for _, p := range b.parts {
		whole = append(whole, p.bytes...)
	}
	return io.NopCloser(bytes.NewReader(whole))
}

// bodyReader reads one part after the other. rest holds the bytes of the first part that
// are in memory. Transports may close a body while they read it.
type bodyReader struct {
	mu     sync.Mutex
	closed bool

	parts  []part
	rest   []byte
	began  bool // the first part is being read
	onRead func()

	content  io.ReadCloser // the open file of the first part; nil if the part is not a file
	left     int64         // bytes of content that are still to be read
	raw, enc []byte        // the bytes of content that are being encoded, and their base64
}

func (r *bodyReader) Read(p []byte) (n int, err error) {
	r.onRead()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, errors.New("the body is closed")
	}
	for n < len(p) {
		if len(r.rest) == 0 {
			if err := r.fill(); err == io.EOF && n > 0 {
				return n, nil
			} else if err != nil {
				return n, err
			}
		}
		c := copy(p[n:], r.rest)
		n, r.rest = n+c, r.rest[c:]
	}
	return n, nil
}

// fill puts the next bytes into rest.
func (r *bodyReader) fill() error {
	for len(r.rest) == 0 {
		switch {
		case len(r.parts) == 0:
			return io.EOF
		case r.content != nil && r.left > 0:
			return r.encode()
		case r.began:
			if err := r.end(); err != nil {
				return err
			}
			r.parts, r.began = r.parts[1:], false
		default:
			if err := r.begin(r.parts[0]); err != nil {
				return err
			}
			r.began = true
		}
	}
	return nil
}

func (r *bodyReader) begin(p part) (err error) {
	if p.file == nil {
		r.rest = p.bytes
		return nil
	}
	r.left = p.file.size
	r.content, err = p.file.open()
	return err
}

// encodePiece is the number of bytes of a file that are encoded at a time. It is a
// multiple of 3, so that only the end of the file is padded.
const encodePiece = 12 << 10

func (r *bodyReader) encode() error {
	if r.raw == nil {
		r.raw, r.enc = make([]byte, encodePiece), make([]byte, base64.StdEncoding.EncodedLen(encodePiece))
	}
	piece := r.raw[:min(r.left, encodePiece)]
	if _, err := io.ReadFull(r.content, piece); err != nil {
		return fmt.Errorf("read a stored image: %w", err)
	}
	r.left -= int64(len(piece))
	base64.StdEncoding.Encode(r.enc, piece)
	r.rest = r.enc[:base64.StdEncoding.EncodedLen(len(piece))]
	return nil
}

// Close closes the file that is being read.
func (r *bodyReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	return r.end()
}

// end closes the file of the first part, if one is open.
func (r *bodyReader) end() error {
	if r.content == nil {
		return nil
	}
	content := r.content
	r.content = nil
	return content.Close()
}

// assets opens stored images while a request runs.
type assets struct {
	ctx  context.Context
	open func(context.Context, string) (loquat.Asset, io.ReadCloser, error)
}

// resolve replaces the asset id of an image by the asset's file, or by a note that the
// asset does not exist.
func (a assets) resolve(img *image) {
	if img.assetID == "" {
		return
	}
	if a.open == nil {
		img.note = noteUnresolved
		return
	}
	id := img.assetID
	described, content, err := a.open(a.ctx, id)
	switch {
	case loquat.CodeOf(err) == loquat.CodeNotFound:
		img.note = noteLost
	case err != nil:
		img.note = noteUnresolved
	case content.Close() != nil:
		img.note = noteUnresolved
	default:
		img.file = &file{mediaType: described.MediaType, size: described.Size, open: func() (io.ReadCloser, error) {
			_, content, err := a.open(a.ctx, id)
			if err != nil {
				return nil, errors.Join(errors.New("a stored image is gone"), err)
			}
			return content, nil
		}}
	}
}
