package httpapi

import (
	"net/http"
	"time"

	"loquat/internal/auth"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

// progressTimeout is how long a client may read nothing of an answer before it is
// disconnected.
const progressTimeout = 30 * time.Second

// deadlineSlack is by how much a write deadline may exceed progressTimeout. So a connection
// that is written often sets its deadline only once a second.
const deadlineSlack = time.Second

// writeBytes is the size of one write. Small writes make the progress of a slow client
// visible, so that it is not taken for a client that does not read.
const writeBytes = 64 << 10

// responseWriter records what was answered, and disconnects a client that does not read.
type responseWriter struct {
	http.ResponseWriter
	method   string
	route    *route.Route // nil until one is found
	file     string       // pattern of the static file, "" for none
	began    time.Time
	who      auth.Principal // nobody on an open route
	by       chat.By        // the same, for its changes
	admitted bool           // the call passed the check of its token
	status   int            // 0 until the answer begins
	first    time.Duration  // from began until the answer began
	body     *requestBody   // of the request; nil when it has none
	held     *hold          // memory reserved for the client; nil when none is
	deadline time.Time      // of writes; zero until one is set
}

// Unwrap returns the wrapped writer, which http.ResponseController needs.
func (w *responseWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *responseWriter) WriteHeader(status int) {
	if w.status == 0 && status >= http.StatusOK {
		w.body.settle(w.Header())
	}
	if w.status == 0 && (status >= http.StatusOK || status == http.StatusSwitchingProtocols) {
		w.status, w.first = status, time.Since(w.began)
	}
	w.extend()
	w.ResponseWriter.WriteHeader(status)
}

func (w *responseWriter) Write(b []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	for n := 0; ; {
		w.extend()
		w.held.beginWrite()
		wrote, err := w.ResponseWriter.Write(b[n:min(len(b), n+writeBytes)])
		w.held.endWrite()
		if n += wrote; err != nil || n >= len(b) {
			return n, err
		}
	}
}

// FlushError sends buffered output.
func (w *responseWriter) FlushError() error {
	w.extend()
	w.held.beginWrite()
	defer w.held.endWrite()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// extend keeps the write deadline at least progressTimeout away. It ignores errors: a writer
// without deadlines is not a connection.
func (w *responseWriter) extend() {
	now := time.Now()
	switch {
	case w.held.ended():
		w.deadline = now
	case w.deadline.Sub(now) >= progressTimeout:
		return
	default:
		w.deadline = now.Add(progressTimeout + deadlineSlack)
	}
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(w.deadline)
}
