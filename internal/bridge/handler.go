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

// maxClaim bounds the body of a claim.
const maxClaim = 4 << 10

// Handler is the HTTP side of a bridge that stands alone; fail answers with an error,
// metrics serves /metrics. The bridge is ready as soon as it answers, whether servers
// are there or not: apps wait for those on their sockets.
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
	mux.HandleFunc("GET /healthz", says(`{"status":"ok"}`))
	mux.HandleFunc("GET /readyz", says(`{"ready":true}`))
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, loquat.Errorf(loquat.CodeNotFound, "a bridge has /bridge/websocket, POST /pairing/claim, /healthz, /readyz and /metrics"))
	})
	return mux
}

// says answers always the same.
func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, text+"\n")
	}
}

// claim passes a pairing code on to the server at which it is open. A code that is
// open nowhere is answered as the servers answer one.
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
	w.Header().Set("Content-Type", answer.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(answer.Status)
	_, _ = w.Write(parts)
	return nil
}

// serverOf finds the server at which a code is open, by its public part.
func (h *Hub) serverOf(code string) (*remote, bool) {
	public, ok := auth.PublicPart(code)
	if !ok {
		return nil, false
	}
	for _, r := range h.remotes {
		if r.opens(public) {
			return r, true
		}
	}
	return nil, false
}

// addressOf is the address of the client; the zero one is not known.
func addressOf(r *http.Request) netip.Addr {
	ap, _ := netip.ParseAddrPort(r.RemoteAddr)
	return ap.Addr().Unmap().WithZone("")
}
