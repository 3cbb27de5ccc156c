package bridge

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"unicode/utf8"

	"loquat"
)

// Relay sends requests of apps to the HTTP API of the server in this process, which
// checks their tokens itself.
type Relay struct {
	Handler http.Handler
	Host    string // for the requests' Host header
}

// Get reads a path of the API. It refuses streams, which have no end.
func (r *Relay) Get(ctx context.Context, token, path string, from netip.Addr, take func(Part) error) (Answer, error) {
	u, err := url.ParseRequestURI(path)
	if err != nil || u.Host != "" || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") {
		return Answer{}, loquat.Invalid("path", "must be a path of the HTTP API, with its query")
	}
	if strings.HasSuffix(u.Path, "/stream") || strings.HasSuffix(u.Path, "/websocket") {
		return Answer{}, loquat.Invalid("path", "is a stream, which has no end")
	}
	return r.do(ctx, http.MethodGet, u, nil, token, from, take)
}

// claim claims a pairing code.
func (r *Relay) claim(ctx context.Context, body []byte, from netip.Addr, take func(Part) error) (Answer, error) {
	return r.do(ctx, http.MethodPost, &url.URL{Path: "/pairing/claim"}, body, "", from, take)
}

func (r *Relay) do(ctx context.Context, method string, u *url.URL, body []byte, token string, from netip.Addr, take func(Part) error) (answer Answer, err error) {
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return Answer{}, loquat.Invalid("path", "must be a path of the HTTP API, with its query")
	}
	req.Host, req.RequestURI, req.RemoteAddr = r.Host, u.RequestURI(), netip.AddrPortFrom(from, 0).String()
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	w := &partWriter{header: http.Header{}, take: take}
	defer func() {
		if v := recover(); v != nil { // only http.ErrAbortHandler: the API recovers from other panics itself
			err = loquat.Errorf(loquat.CodeUnavailable, "the answer was cut")
		}
	}()
	r.Handler.ServeHTTP(w, req)
	if err := w.end(); err != nil {
		return Answer{}, err
	}
	return Answer{w.status, w.header.Get("Content-Type")}, nil
}

// partWriter is a ResponseWriter that passes the body on in parts.
type partWriter struct {
	header http.Header
	status int
	text   bool
	buf    []byte
	take   func(Part) error
	failed error
}

func (w *partWriter) Header() http.Header { return w.header }

func (w *partWriter) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}
	w.status = status
	media := w.header.Get("Content-Type")
	w.text = strings.HasPrefix(media, "text/") || strings.Contains(media, "json") || strings.Contains(media, "xml")
}

func (w *partWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	for n := len(b); ; {
		if w.failed != nil {
			return 0, w.failed
		}
		fits := min(len(b), w.partSize()-len(w.buf))
		w.buf = append(w.buf, b[:fits]...)
		if b = b[fits:]; len(b) == 0 {
			return n, nil
		}
		w.send(false)
	}
}

// partSize returns how many bytes of the body one part holds.
func (w *partWriter) partSize() int {
	if w.text {
		return partBytes
	}
	return partBytes / 4 * 3
}

// send passes the gathered bytes on as a part. An incomplete character at the end waits
// for its other bytes, unless last is set.
func (w *partWriter) send(last bool) {
	whole := len(w.buf)
	if w.text && !last {
		for i := 1; i < utf8.UTFMax && i < len(w.buf); i++ {
			if tail := w.buf[len(w.buf)-i:]; utf8.RuneStart(tail[0]) {
				if !utf8.FullRune(tail) {
					whole -= i
				}
				break
			}
		}
	}
	if whole > 0 {
		part := Part{Data: string(w.buf[:whole])}
		if !w.text {
			part = Part{Data: base64.StdEncoding.EncodeToString(w.buf[:whole]), Encoding: encodingBase64}
		}
		w.failed = w.take(part)
	}
	w.buf = append(w.buf[:0], w.buf[whole:]...)
}

func (w *partWriter) end() error {
	w.WriteHeader(http.StatusOK)
	if w.failed == nil {
		w.send(true)
	}
	return w.failed
}
