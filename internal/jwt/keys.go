package jwt

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

// keepsKeys is how long keys are used before they are loaded anew.
const keepsKeys = time.Hour

// keySet is the keys of one issuer. The library's key set never forgets a key, so there is a new one every hour.
type keySet struct {
	url    string
	client *http.Client

	mu   sync.Mutex
	keys *oidc.RemoteKeySet
	due  time.Time // when keys are loaded anew
}

func newKeySet(through http.RoundTripper, url string) *keySet {
	k := &keySet{url: url, client: &http.Client{
		Transport:     &sparing{next: through}, // which has the limit of time: that of a client would hide the reason
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	k.keys, k.due = k.load(), time.Now().Add(keepsKeys)
	return k
}

// load returns a key set that loads the keys when it is used first.
func (k *keySet) load() *oidc.RemoteKeySet {
	return oidc.NewRemoteKeySet(oidc.ClientContext(context.Background(), k.client), k.url)
}

// fetchError is the key of a context's place for the error of loading keys, which the library turns into text.
type fetchError struct{}

// VerifySignature implements oidc.KeySet.
func (k *keySet) VerifySignature(ctx context.Context, token string) ([]byte, error) {
	k.mu.Lock()
	keys, due := k.keys, !time.Now().Before(k.due)
	k.mu.Unlock()
	if due {
		newer := k.load()
		payload, err := newer.VerifySignature(ctx, token)
		_, down := errors.AsType[*failedFetch](err) // then the keys from before count until the issuer answers
		k.mu.Lock()
		if k.due = time.Now().Add(retry); !down && ctx.Err() == nil {
			k.keys, k.due = newer, time.Now().Add(keepsKeys)
		}
		k.mu.Unlock()
		if !down {
			return payload, err
		}
	}
	payload, err := keys.VerifySignature(ctx, token)
	if failed, ok := errors.AsType[*failedFetch](err); ok {
		if place, ok := ctx.Value(fetchError{}).(*error); ok {
			*place = failed
		}
	}
	return payload, err
}
