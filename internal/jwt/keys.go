package jwt

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
)

const (
	// keepsKeys is how long keys are used before they are loaded again.
	keepsKeys = time.Hour
	// patience is how long the call that loads keys again waits for them before it uses the known keys.
	patience = 500 * time.Millisecond
)

// keySet is the keys of one issuer. The library's key set never forgets a key, so there is a new one every hour.
type keySet struct {
	url    string
	client *http.Client

	mu   sync.Mutex
	keys *oidc.RemoteKeySet
	due  time.Time // when keys are loaded again
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
	k.renew(ctx, token)
	k.mu.Lock()
	keys := k.keys
	k.mu.Unlock()
	payload, err := keys.VerifySignature(ctx, token)
	if failed, ok := errors.AsType[*failedFetch](err); ok {
		if place, ok := ctx.Value(fetchError{}).(*error); ok {
			*place = failed
		}
	}
	return payload, err
}

// renew loads the keys again if they are due. It returns when they are loaded, or after patience. If they cannot be
// loaded, the keys from before count until the issuer answers.
func (k *keySet) renew(ctx context.Context, token string) {
	k.mu.Lock()
	due := !time.Now().Before(k.due)
	if due {
		k.due = time.Now().Add(keepsKeys) // so that other calls do not load meanwhile
	}
	k.mu.Unlock()
	if !due {
		return
	}
	loaded := make(chan struct{})
	loading := context.WithoutCancel(ctx) // other calls need the keys too; the transport has a limit of time
	go func() {
		defer close(loaded)
		newer := k.load()
		_, err := newer.VerifySignature(loading, token)
		_, down := errors.AsType[*failedFetch](err)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.due = time.Now().Add(retry); !down {
			k.keys, k.due = newer, time.Now().Add(keepsKeys)
		}
	}()
	select {
	case <-loaded:
	case <-time.After(patience):
	case <-ctx.Done():
	}
}
