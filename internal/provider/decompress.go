package provider

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// errCoding reports that the backend compressed its answer in a way that cannot be read.
var errCoding = errors.New("the body is compressed")

// decompressed reads a body that a backend may have compressed, although requests ask for
// no compression. It decides by the first bytes of the body. The Content-Encoding may be
// missing, or it may be left over from a proxy that has decompressed the body.
type decompressed struct {
	body   io.Reader
	coding string    // Content-Encoding; "" for identity
	plain  io.Reader // nil until the body has begun
}

func decompress(h http.Header, body io.Reader) io.Reader {
	var codings []string
	for _, coding := range strings.Split(strings.Join(h.Values("Content-Encoding"), ","), ",") {
		if coding = strings.ToLower(strings.TrimSpace(coding)); coding != "" && coding != "identity" {
			codings = append(codings, coding)
		}
	}
	return &decompressed{body: body, coding: strings.Join(codings, ", ")}
}

func (d *decompressed) Read(p []byte) (int, error) {
	if d.plain != nil {
		return d.plain.Read(p)
	}
	n, err := d.body.Read(p)
	if n == 0 {
		return 0, err
	}
	if d.isPlain(p[0]) {
		d.plain = d.body
		return n, err
	}
	rest := d.body
	if err != nil {
		rest = failing{err}
	}
	if d.plain, err = d.open(io.MultiReader(bytes.NewReader(bytes.Clone(p[:n])), rest)); err != nil {
		d.plain = failing{err}
	}
	return d.plain.Read(p)
}

// isPlain reports whether a body that begins with this byte is not compressed. No text
// begins with the first byte of gzip.
func (d *decompressed) isPlain(first byte) bool {
	switch d.coding {
	case "", "gzip", "x-gzip":
		return first != 0x1f
	}
	return false
}

// open returns the reader that decompresses body.
func (d *decompressed) open(body io.Reader) (io.Reader, error) {
	switch d.coding {
	case "", "gzip", "x-gzip":
		return gzip.NewReader(body)
	case "deflate":
		return inflate(body)
	}
	return nil, fmt.Errorf("%w with %q; only gzip and deflate can be read: turn compression off in the backend, or in the proxy in front of it", errCoding, d.coding)
}

// inflate reads the coding deflate. Its definition wraps the data in zlib's format; some
// servers leave that out.
func inflate(body io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(body)
	head, err := buffered.Peek(2)
	if err != nil && err != io.EOF {
		return nil, err
	}
	const method, multiple = 8, 31 // of zlib's header
	if len(head) == 2 && head[0]&0x0f == method && (int(head[0])<<8|int(head[1]))%multiple == 0 {
		return zlib.NewReader(buffered)
	}
	return flate.NewReader(buffered), nil
}
