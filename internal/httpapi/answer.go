package httpapi

import (
	"net/http"
	"time"

	"loquat/internal/auth"
	"loquat/internal/httpapi/route"
)

// progressTimeout is how long a client may read nothing of what it is sent.
const progressTimeout = 30 * time.Second

// writeBytes is how much is written at a time, so that a slow client which reads is not
// taken for one that does not.
const writeBytes = 64 << 10

// answerWriter knows what has been answered, and cuts off who does not read.
type answerWriter struct {
	http.ResponseWriter
	method   string
	route    *route.Route // nil until one is found
	file     string       // pattern of the static file, "" for none
	began    time.Time
	who      auth.Principal // nobody on an open route
	admitted bool           // the call's token, or that none is needed, was checked
	status   int            // 0 until the answer begins
	first    time.Duration  // until then
	body     *incoming      // of the request; nil when it has none
	held     *hold          // what is kept for the client; nil when nothing is
}

// Unwrap lets http.ResponseController find what this does not do itself.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *answerWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.body.settle(w.Header())
	}
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status, w.first = status, time.Since(w.began)
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	for n := 0; ; {
		w.extend()
		wrote, err := w.ResponseWriter.Write(b[n:min(len(b), n+writeBytes)])
		n += wrote
		if err != nil || n >= len(b) {
			w.held.progress()
			return n, err
		}
		w.held.progress()
	}
}

// FlushError sends what is buffered.
func (w *answerWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// extend gives the client another while to take what comes. Writers that know no
// deadlines are not connections.
func (w *answerWriter) extend() {
	if w.held.ended() {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now())
		return
	}
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(progressTimeout))
}
