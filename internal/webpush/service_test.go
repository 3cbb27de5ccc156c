package webpush_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"loquat"
)

// received is a notification as a browser shows it, with what the push service saw.
type received struct {
	browser int
	topic   string
	at      time.Time
	loquat.PushNotification
}

// pushService is a push service with its browsers. It checks every call.
type pushService struct {
	t      *testing.T
	server *httptest.Server
	answer func(browser, call int) (status int, header http.Header) // 201 if nil

	mu       sync.Mutex
	browsers []*browser
	calls    []int // for each browser
	key      string
	got      []received
	arrived  chan struct{}
}

// browser has the keys of a subscription.
type browser struct {
	private *ecdh.PrivateKey
	secret  [16]byte
}

func startPushService(t *testing.T) *pushService {
	p := &pushService{t: t, arrived: make(chan struct{}, 1)}
	p.server = httptest.NewTLSServer(http.HandlerFunc(p.serve))
	t.Cleanup(p.server.Close)
	return p
}

func (p *pushService) tls() *tls.Config {
	return p.server.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
}

// subscription returns the subscription of a new browser.
func (p *pushService) subscription() loquat.NewPushSubscription {
	private, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	b := &browser{private: private}
	rand.Read(b.secret[:])
	p.mu.Lock()
	defer p.mu.Unlock()
	p.browsers, p.calls = append(p.browsers, b), append(p.calls, 0)
	return loquat.NewPushSubscription{
		Endpoint: fmt.Sprintf("%s/capability/%d", p.server.URL, len(p.browsers)-1),
		Keys: loquat.PushEncryptionKeys{
			P256dh: base64.RawURLEncoding.EncodeToString(private.PublicKey().Bytes()),
			Auth:   base64.RawURLEncoding.EncodeToString(b.secret[:]),
		},
	}
}

func (p *pushService) serve(w http.ResponseWriter, r *http.Request) {
	var n int
	if _, err := fmt.Sscanf(r.URL.Path, "/capability/%d", &n); err != nil {
		p.t.Errorf("called at %s", r.URL.Path)
	}
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	b, call, answer, key := p.browsers[n], p.calls[n], p.answer, p.key
	p.calls[n]++
	p.mu.Unlock()
	if err := p.verify(r, key); err != nil {
		p.t.Errorf("a call is not authorized: %v", err)
	}
	if r.Method != "POST" || r.Header.Get("TTL") != "43200" || r.Header.Get("Content-Encoding") != "aes128gcm" || len(r.Header.Get("Topic")) != 32 {
		p.t.Errorf("%s with the headers %v", r.Method, r.Header)
	}
	text, err := b.decrypt(body)
	if err != nil {
		p.t.Errorf("a notification cannot be decrypted: %v", err)
	}
	if answer != nil {
		if status, header := answer(n, call); status != http.StatusCreated {
			for name := range header {
				w.Header().Set(name, header.Get(name))
			}
			w.WriteHeader(status)
			return
		}
	}
	note := received{browser: n, topic: r.Header.Get("Topic"), at: time.Now()}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&note.PushNotification); err != nil {
		p.t.Errorf("a notification is %q: %v", text, err)
	}
	p.mu.Lock()
	p.got = append(p.got, note)
	p.mu.Unlock()
	w.WriteHeader(http.StatusCreated)
	select {
	case p.arrived <- struct{}{}:
	default:
	}
}

// verify checks the VAPID token of a call (RFC 8292).
func (p *pushService) verify(r *http.Request, key string) error {
	fields := strings.NewReplacer("vapid ", "", ", ", "&").Replace(r.Header.Get("Authorization"))
	parts := strings.Split(strings.TrimPrefix(fields, "t="), "&k=")
	if len(parts) != 2 || parts[1] != key {
		return fmt.Errorf("Authorization is %q, the key of the server is %q", fields, key)
	}
	public, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return err
	}
	token := strings.Split(parts[0], ".")
	if len(token) != 3 {
		return errors.New("the token does not have three parts")
	}
	signature, err := base64.RawURLEncoding.DecodeString(token[2])
	if err != nil || len(signature) != 64 {
		return fmt.Errorf("the signature has %d bytes: %v", len(signature), err)
	}
	hash := sha256.Sum256([]byte(token[0] + "." + token[1]))
	of, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), public)
	if err != nil {
		return err
	}
	if !ecdsa.Verify(of, hash[:], new(big.Int).SetBytes(signature[:32]), new(big.Int).SetBytes(signature[32:])) {
		return errors.New("the signature is wrong")
	}
	raw, err := base64.RawURLEncoding.DecodeString(token[1])
	if err != nil {
		return err
	}
	var claims struct {
		Aud, Sub string
		Exp      int64
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		return err
	}
	if left := time.Until(time.Unix(claims.Exp, 0)); claims.Aud != p.server.URL || claims.Sub != "mailto:admin@example.org" || left <= 0 || left > 24*time.Hour {
		return fmt.Errorf("the claims are %+v", claims)
	}
	return nil
}

// decrypt decrypts a notification of one record (RFC 8291).
func (b *browser) decrypt(body []byte) ([]byte, error) {
	if len(body) < 86 || body[20] != 65 {
		return nil, errors.New("it has no header")
	}
	salt, size, sender := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:86]
	if len(body)-86 > int(size) {
		return nil, errors.New("it has more than one record")
	}
	from, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	shared, err := b.private.ECDH(from)
	if err != nil {
		return nil, err
	}
	info := "WebPush: info\x00" + string(b.private.PublicKey().Bytes()) + string(sender)
	material, _ := hkdf.Key(sha256.New, shared, b.secret[:], info, 32)
	key, _ := hkdf.Key(sha256.New, material, salt, "Content-Encoding: aes128gcm\x00", 16)
	nonce, _ := hkdf.Key(sha256.New, material, salt, "Content-Encoding: nonce\x00", 12)
	block, _ := aes.NewCipher(key)
	gcm, _ := cipher.NewGCM(block)
	plain, err := gcm.Open(nil, nonce, body[86:], nil)
	if err != nil {
		return nil, err
	}
	plain = bytes.TrimRight(plain, "\x00")
	if len(plain) == 0 || plain[len(plain)-1] != 2 {
		return nil, errors.New("its record is not the last one")
	}
	return plain[:len(plain)-1], nil
}

// await returns the notifications once there are n, and fails if there are more.
func (p *pushService) await(n int) []received {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; {
		p.mu.Lock()
		got := p.got
		p.mu.Unlock()
		if len(got) > n {
			p.t.Fatalf("%d notifications, want %d: %+v", len(got), n, got)
		}
		if len(got) == n {
			return got
		}
		if time.Now().After(end) {
			p.t.Fatalf("only %d of %d notifications: %+v", len(got), n, got)
		}
		select {
		case <-p.arrived:
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitCall waits for the first call for a browser.
func (p *pushService) awaitCall(browser int) {
	p.t.Helper()
	for end := time.Now().Add(20 * time.Second); p.callsOf(browser) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("no call for browser %d", browser)
		}
	}
}

func (p *pushService) setAnswer(answer func(browser, call int) (int, http.Header)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = answer
}

func (p *pushService) callsOf(browser int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[browser]
}
