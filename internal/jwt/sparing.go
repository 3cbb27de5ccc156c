package jwt

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// fetchTimeout is how long an issuer may take to answer.
var fetchTimeout = 10 * time.Second

const (
	maxKeySet = 1 << 20 // bytes

	// fresh is how long an answer counts as the newest keys: a token with an unknown key is refused without
	// another call. retry is the same for a failure.
	fresh = 30 * time.Second
	retry = 2 * time.Second
)

// failedFetch says why keys could not be loaded.
type failedFetch struct{ err error }

func (f *failedFetch) Error() string { return f.err.Error() }
func (f *failedFetch) Unwrap() error { return f.err }

// sparing is the transport for the keys of one issuer. It answers from memory while what it has is fresh.
type sparing struct {
	next http.RoundTripper

	mu     sync.Mutex // held during a call
	at     time.Time  // of the last call
	body   []byte
	failed *failedFetch // of the last call
}

func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := fresh
	if s.failed != nil {
		pause = retry
	}
	if s.at.IsZero() || time.Since(s.at) >= pause {
		body, err := s.fetch(r)
		s.at, s.body, s.failed = time.Now(), body, nil
		if err != nil {
			s.failed = &failedFetch{err}
		}
	}
	if s.failed != nil {
		return nil, s.failed
	}
	return &http.Response{
		Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(s.body)), ContentLength: int64(len(s.body)), Request: r,
	}, nil
}

func (s *sparing) fetch(r *http.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(r.Context(), fetchTimeout)
	defer cancel()
	answer, err := s.next.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %s", r.URL.Redacted(), answer.Status)
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxKeySet+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxKeySet {
		return nil, fmt.Errorf("%s answered more than %d bytes", r.URL.Redacted(), maxKeySet)
	}
	usable := usableKeys(body)
	if len(usable.Keys) == 0 {
		return nil, fmt.Errorf("%s answered no usable keys", r.URL.Redacted())
	}
	return json.Marshal(usable)
}

// usableKeys returns the keys of a set that can verify tokens. The library refuses a whole set for one key that it
// cannot decode, although RFC 7517, section 5, says to ignore such a key.
func usableKeys(body []byte) jose.JSONWebKeySet {
	var all struct {
		Keys []json.RawMessage `json:"keys"`
	}
	var usable jose.JSONWebKeySet
	if json.Unmarshal(body, &all) != nil {
		return usable
	}
	for _, raw := range all.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && key.IsPublic() && (key.Algorithm == "" || slices.Contains(algorithms, key.Algorithm)) {
			usable.Keys = append(usable.Keys, jose.JSONWebKey{Key: key.Key, KeyID: key.KeyID, Algorithm: key.Algorithm, Use: key.Use})
		}
	}
	return usable
}
