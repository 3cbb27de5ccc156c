package httpapi

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/feed"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// An answer that is cut because the database cannot be read aborts the connection. The store
// reports the fault, so the cut is not an error of its own.
func TestAnswerThatIsCut(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	db, err := sqlite.Open(t.Context(), t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	driver := &Unreadable{Driver: db}
	st, err := store.Open(t.Context(), driver, store.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	driver.Fails.Store(true)
	var log bytes.Buffer
	a := &api{feed: feed.New(st), log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))}
	whole := loquat.Record{ID: 2, SessionID: "s", Type: loquat.SessionCreated, Rev: 1, Body: []byte(`{"type":"session_created"}`)}
	func() {
		defer func() {
			if v := recover(); v != http.ErrAbortHandler {
				t.Errorf("the connection goes on: %v", v)
			}
		}()
		_ = a.writeEvents(t.Context(), httptest.NewRecorder(), []loquat.Record{record(1), whole})
	}()
	if line := log.String(); !strings.Contains(line, "an answer of events was cut") || !strings.Contains(line, "level=DEBUG") {
		t.Errorf("logged: %s", line)
	}
	if got := levelOfCut(errors.New("the session cannot be encoded")); got != slog.LevelError {
		t.Errorf("an error of the server is logged at level %s", got)
	}
}
