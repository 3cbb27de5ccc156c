package httpapi

import (
	"net/http"
	"time"
)

// progressTimeout is how long a client may read nothing of what it is sent.
const progressTimeout = 30 * time.Second

// answerWriter knows what has been answered, and cuts off who does not read.
type answerWriter struct {
	http.ResponseWriter
	method   string
	route    string // "" until one is found
	began    time.Time
	admitted bool          // the call's token, or that none is needed, was checked
	status   int           // 0 until the answer begins
	first    time.Duration // until then
	body     *incoming     // of the request; nil when it has none
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
	w.extend()
	return w.ResponseWriter.Write(b)
}

// FlushError sends what is buffered.
func (w *answerWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// extend gives the client another while to take what comes. Writers that know no
// deadlines are not connections.
func (w *answerWriter) extend() {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(progressTimeout))
}
