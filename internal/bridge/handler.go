package bridge

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"

	"loquat"
	"loquat/internal/auth"
)

// maxClaim bounds the body of a claim, in bytes.
const maxClaim = 4 << 10

// Handler returns the HTTP handler of a bridge without a server in its process. fail
// writes an error; metrics serves /metrics. The bridge is ready even while no server is
// connected: apps wait for the servers on their sockets.
func (h *Hub) Handler(fail func(http.ResponseWriter, error), metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /bridge/websocket", func(w http.ResponseWriter, r *http.Request) {
		from := addressOf(r)
		if err := h.Refuse(r, from); err != nil {
			fail(w, err)
			return
		}
		h.Serve(w, r, from)
	})
	mux.HandleFunc("POST /pairing/claim", func(w http.ResponseWriter, r *http.Request) {
		if err := h.claim(w, r); err != nil {
			fail(w, err)
		}
	})
	mux.HandleFunc("GET /healthz", fixedAnswer(`{"status":"ok"}`))
	mux.HandleFunc("GET /readyz", fixedAnswer(`{"ready":true}`))
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, loquat.Errorf(loquat.CodeNotFound, "a bridge has /bridge/websocket, POST /pairing/claim, /healthz, /readyz and /metrics"))
	})
	return mux
}

// fixedAnswer returns a handler that always answers with text.
func fixedAnswer(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, text+"\n")
	}
}

// claim passes a pairing code on to the server where it is open. If there is none, the
// answer is the one that servers give for a wrong code.
func (h *Hub) claim(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxClaim))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return loquat.Errorf(loquat.CodeTooLarge, "a claim has at most %d bytes", maxClaim)
	}
	var params struct {
		Code string `json:"code"`
	}
	if err != nil || json.Unmarshal(body, &params) != nil {
		return &loquat.Error{Code: loquat.CodeInvalid, Malformed: true, Detail: "the body has to be a JSON object with code and device_name"}
	}
	if err := h.attempts.Claim(addressOf(r)); err != nil {
		return err
	}
	at, ok := h.serverOf(params.Code)
	if !ok {
		return auth.ErrWrongCode()
	}
	var parts []byte
	answer, err := at.ask(r.Context(), eventClaim, askParams{Body: body, Address: addressOf(r)}, func(p Part) error {
		b, err := p.bytes()
		if parts = append(parts, b...); len(parts) > partBytes {
			return loquat.Errorf(loquat.CodeTooLarge, "the answer of the server is over %d bytes", partBytes)
		}
		return err
	})
	if err != nil {
		return err
	}
	// The type is not the server's choice: a page of HTML would run with the bridge's origin.
	media := "application/json"
	if answer.Status >= http.StatusBadRequest {
		media = "application/problem+json"
	}
	w.Header().Set("Content-Type", media)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(answer.Status)
	_, _ = w.Write(parts)
	return nil
}

// serverOf returns the server where a code is open. It compares the code's public part. A code that is open at two
// servers is passed on to neither: one of them may want the secret of the other's.
func (h *Hub) serverOf(code string) (*remote, bool) {
	public, ok := auth.PublicPart(code)
	if !ok {
		return nil, false
	}
	var at *remote
	for _, r := range h.remotes {
		switch {
		case !r.opens(public):
		case at != nil:
			return nil, false
		default:
			at = r
		}
	}
	return at, at != nil
}

// addressOf returns the client's address. The zero address means unknown.
func addressOf(r *http.Request) netip.Addr {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr)
	return ap.Addr().Unmap().WithZone("")
}
