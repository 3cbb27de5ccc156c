package access_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"loquat"
	"loquat/internal/e2e/binary"
	"loquat/internal/phx/phxtest"
)

// proxySilence is how long a stream, a poll and a socket are silent behind a proxy,
// unless LOQUAT_PROXY_SECONDS says otherwise.
const proxySilence = time.Second

// The proxies of docs/access.md, each run with what the page shows for it.
var frontends = []struct {
	name  string
	start func(f *front, sample string) *exec.Cmd
}{
	{"nginx", startNginx},
	{"caddy", startCaddy},
}

// The proxy configurations in docs/access.md work unchanged, except for addresses and paths:
// TLS, the API, event streams, long polls, sockets, uploads, and the client's address.
func TestProxies(t *testing.T) {
	for _, proxy := range frontends {
		t.Run(proxy.name, func(t *testing.T) {
			if _, err := exec.LookPath(proxy.name); err != nil {
				t.Skipf("%s is not there: its sample is not held against it", proxy.name)
			}
			f := newFront(t)
			f.run(proxy.start(f, f.sample(map[string]string{"nginx": "nginx", "caddy": "caddyfile"}[proxy.name])))
			t.Run("who may come in", f.testAccess)
			t.Run("streams", f.testStream)
			t.Run("polls", f.testPoll)
			t.Run("uploads", f.testUpload)
			if t.Run("sockets", f.testSocket) { // or an app would try again for ever
				t.Run("apps", f.testApp)
			}
			t.Run("guesses", f.testGuesses) // the last, because it makes an address wait
		})
	}
}

// front is a server behind a proxy.
type front struct {
	t       *testing.T
	dir     string
	port    string // of the proxy
	ca      string // file of the certificates that its own is made by
	token   string
	server  *binary.Process
	client  *http.Client
	silence time.Duration
}

func newFront(t *testing.T) *front {
	t.Helper()
	_, port, err := net.SplitHostPort(binary.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &front{t: t, dir: t.TempDir(), port: port, silence: proxySilence}
	if s := os.Getenv("LOQUAT_PROXY_SECONDS"); s != "" {
		seconds, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("LOQUAT_PROXY_SECONDS: %v", err)
		}
		f.silence = time.Duration(seconds) * time.Second
	}
	cfg := f.write("loquat.json", f.sample("json"))
	args := []string{"--config", cfg, "--data", filepath.Join(f.dir, "data")}
	var out, stderr bytes.Buffer
	if err := binary.Run(t.Context(), append([]string{"token", "new", "me"}, args...), strings.NewReader(""), &out, &stderr); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	f.token = strings.TrimSpace(out.String())
	f.server = binary.Start(t, nil, append([]string{"serve", "--demo", "--listen", "127.0.0.1:0"}, args...)...)
	return f
}

// sample returns the page's code sample in a language, with the paths of this run.
func (f *front) sample(language string) string {
	f.t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "access.md"))
	if err != nil {
		f.t.Fatal(err)
	}
	m := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(string(page), -1)
	if len(m) != 1 {
		f.t.Fatalf("docs/access.md has %d samples in %s", len(m), language)
	}
	text := strings.ReplaceAll(m[0][1], "https://chat.example.org", "https://localhost:"+f.port)
	if f.server != nil {
		text = strings.ReplaceAll(text, "127.0.0.1:8787", strings.TrimPrefix(f.server.URL, "http://"))
	}
	return text
}

func (f *front) write(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

// startNginx puts the sample into the http section that a distribution's nginx.conf has.
func startNginx(f *front, sample string) *exec.Cmd {
	certificate, key := binary.SelfSigned(f.t, 1)
	f.ca = f.write("cert.pem", certificate)
	for from, to := range map[string]string{
		"listen 443 ": "listen 127.0.0.1:" + f.port + " ", "server_name chat.example.org": "server_name localhost",
		"/etc/letsencrypt/live/chat.example.org/fullchain.pem": f.ca, "/etc/letsencrypt/live/chat.example.org/privkey.pem": f.write("key.pem", key),
	} {
		if !strings.Contains(sample, from) {
			f.t.Fatalf("the sample has no %q", from)
		}
		sample = strings.ReplaceAll(sample, from, to)
	}
	var places strings.Builder
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		fmt.Fprintf(&places, "%s_temp_path %s;\n", kind, filepath.Join(f.dir, kind))
	}
	cfg := f.write("nginx.conf", fmt.Sprintf("daemon off;\nmaster_process off;\npid %s;\nevents {}\nhttp {\naccess_log off;\n%s%s}\n",
		filepath.Join(f.dir, "nginx.pid"), &places, sample))
	return exec.Command("nginx", "-p", f.dir, "-e", "stderr", "-c", cfg)
}

// startCaddy puts options before the sample, which keep it on loopback, on ports of its
// own, and let it make the certificate by itself.
func startCaddy(f *front, sample string) *exec.Cmd {
	_, other, err := net.SplitHostPort(binary.FreeAddress(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	options := fmt.Sprintf("{\n\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port %s\n\thttps_port %s\n\tlocal_certs\n\tskip_install_trust\n}\n", other, f.port)
	cfg := f.write("Caddyfile", options+strings.Replace(sample, "chat.example.org", "localhost", 1))
	f.ca = filepath.Join(f.dir, "caddy", "pki", "authorities", "local", "root.crt")
	cmd := exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", cfg)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+f.dir, "XDG_CONFIG_HOME="+f.dir, "HOME="+f.dir)
	return cmd
}

// run runs the proxy until the test ends, and waits until it answers.
func (f *front) run(cmd *exec.Cmd) {
	f.t.Helper()
	log := &binary.LockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		f.client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how it ends is not Loquat's doing
		killer.Stop()
		if f.t.Failed() {
			f.t.Logf("the proxy says:\n%s", log)
		}
	})
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		f.client = f.from("127.0.0.1")
		resp, err := f.client.Get(f.url("/healthz"))
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("it answers %s", resp.Status)
		}
		if time.Since(began) > time.Minute {
			f.t.Fatalf("the proxy does not serve: %v\n%s", err, log)
		}
	}
}

func (f *front) url(path string) string { return "https://localhost:" + f.port + path }

// from is a client at an address, which trusts the proxy's certificate and no other.
func (f *front) from(address string) *http.Client {
	roots := x509.NewCertPool()
	if b, err := os.ReadFile(f.ca); err == nil {
		roots.AppendCertsFromPEM(b)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, "127.0.0.1:"+f.port)
		},
	}}
}

// call makes a call with the token, and with further headers, "Name: value".
func (f *front) call(t *testing.T, method, path string, body io.Reader, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, f.url(path), body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+f.token)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if req.Header.Set(name, value); name == "Host" {
			req.Host = value
		}
		if value == "" {
			req.Header.Del(name)
		}
	}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// ask makes a call that has to succeed, and reads a field of its answer.
func (f *front) ask(t *testing.T, method, path, body, field string) string {
	t.Helper()
	resp := f.call(t, method, path, strings.NewReader(body))
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %v %v", method, path, resp.Status, answer, err)
	}
	value, _ := answer[field].(string)
	return value
}

func (f *front) session(t *testing.T) string {
	t.Helper()
	return f.ask(t, http.MethodPost, "/sessions", `{}`, "session_id")
}

func (f *front) say(t *testing.T, session string) {
	t.Helper()
	f.ask(t, http.MethodPost, "/sessions/"+session+"/messages", `{"role": "user", "content": "hello"}`, "")
}

// Tokens, host names and origins are checked as without a proxy, and the cookie is Secure.
func (f *front) testAccess(t *testing.T) {
	origin := strings.TrimSuffix(f.url(""), "/")
	resp := f.call(t, http.MethodPost, "/auth/session", strings.NewReader(`{"token": "`+f.token+`"}`), "Authorization: ", "Origin: "+origin)
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusOK || len(cookies) != 1 || !cookies[0].Secure || !strings.HasPrefix(cookies[0].Name, "__Host-") {
		t.Fatalf("signing in: %s %v", resp.Status, cookies)
	}
	cookie := "Cookie: " + cookies[0].Name + "=" + cookies[0].Value
	for _, c := range []struct {
		what    string
		headers []string
		want    int
	}{
		{"with a token", nil, http.StatusCreated},
		{"without", []string{"Authorization: "}, http.StatusUnauthorized},
		{"with the cookie", []string{"Authorization: ", cookie, "Origin: " + origin}, http.StatusCreated},
		{"with the cookie from elsewhere", []string{"Authorization: ", cookie, "Origin: https://evil.example"}, http.StatusForbidden},
		{"from elsewhere", []string{"Origin: https://evil.example"}, http.StatusForbidden},
	} {
		if resp := f.call(t, http.MethodPost, "/sessions", strings.NewReader(`{}`), c.headers...); resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.what, resp.Status, c.want)
		}
	}
	// A proxy may refuse a name that it does not know, or leave that to Loquat.
	resp = f.call(t, http.MethodGet, "/sessions", nil, "Host: evil.example")
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusForbidden && len(body) > 0 {
		t.Errorf("under another name: %s %s", resp.Status, body)
	}
}

// Events arrive at once, even after a long silence.
func (f *front) testStream(t *testing.T) {
	session := f.session(t)
	resp := f.call(t, http.MethodGet, "/events/stream?session_id="+session, nil)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(resp.Body); in.Scan(); {
			select {
			case lines <- in.Text():
			case <-t.Context().Done():
				return
			}
		}
	}()
	until := func(want string) {
		t.Helper()
		for patience := time.After(time.Minute); ; {
			select {
			case line, ok := <-lines:
				if !ok {
					t.Fatalf("the stream ended before %q", want)
				}
				if strings.Contains(line, want) {
					return
				}
			case <-patience:
				t.Fatalf("%q does not come", want)
			}
		}
	}
	until("id: ") // what it opens with, and all there is until somebody speaks
	for began := time.Now(); time.Since(began) < f.silence; {
		select {
		case line, ok := <-lines:
			if !ok || strings.HasPrefix(line, "data: {") && !strings.Contains(line, "{}") {
				t.Fatalf("after %s of silence: %q", time.Since(began), line)
			}
		case <-time.After(f.silence - time.Since(began)):
		}
	}
	f.say(t, session)
	until(`"message_appended"`)
}

// A long poll waits, and answers as soon as there is something.
func (f *front) testPoll(t *testing.T) {
	session := f.session(t)
	at := f.ask(t, http.MethodGet, "/sessions/"+session, "", "cursor_event_id")
	poll := "/events?session_id=" + session + "&since_id=" + at + "&wait="
	began := time.Now()
	f.ask(t, http.MethodGet, fmt.Sprint(poll, f.silence.Seconds()), "", "")
	if took := time.Since(began); took < f.silence {
		t.Errorf("it waited %s of %s", took, f.silence)
	}
	said := make(chan struct{})
	go func() {
		defer close(said)
		time.Sleep(min(f.silence, 30*time.Second)) // the poll is most likely there before it; either way it has to answer
		f.say(t, session)
	}()
	began = time.Now()
	resp := f.call(t, http.MethodGet, poll+"60", nil)
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "message_appended") {
		t.Errorf("after %s it answers %s %v", time.Since(began), body, err)
	}
	<-said
}

// An image larger than the proxies' default limit can be uploaded and read back.
func (f *front) testUpload(t *testing.T) {
	picture := binary.Photo(1, 12<<20)
	session := f.session(t)
	resp := f.call(t, http.MethodPost, "/sessions/"+session+"/assets", bytes.NewReader(picture), "Content-Type: image/png")
	var kept loquat.Asset
	if err := json.NewDecoder(resp.Body).Decode(&kept); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %+v %v", resp.Status, kept, err)
	}
	resp = f.call(t, http.MethodGet, "/sessions/"+session+"/assets/"+kept.AssetID, nil)
	if b, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(b, picture) {
		t.Errorf("what comes back differs (%s, %v)", resp.Status, err)
	}
}

// A socket opens, joins, survives a silence and receives events.
func (f *front) testSocket(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), f.silence+time.Minute)
	defer cancel()
	h1 := f.from("127.0.0.1")
	h1.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	conn, _, err := websocket.Dial(ctx, strings.Replace(f.url("/bridge/websocket?vsn=2.0.0"), "https", "wss", 1), &websocket.DialOptions{HTTPClient: h1})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseNow()
	receive := func(want string) {
		t.Helper()
		for {
			_, frame, err := conn.Read(ctx)
			if err != nil {
				t.Fatalf("before %q: %v", want, err)
			}
			if strings.Contains(string(frame), want) {
				return
			}
		}
	}
	session := f.session(t)
	join := fmt.Sprintf(`["1","1","events:server:%s","phx_join",{"token":%q}]`, f.serverID(t), f.token)
	if err := conn.Write(ctx, websocket.MessageText, []byte(join)); err != nil {
		t.Fatal(err)
	}
	receive(`"status":"ok"`)
	for rest := f.silence; rest > 0; rest -= 30 * time.Second { // as often as Phoenix clients have a heartbeat
		time.Sleep(min(rest, 30*time.Second))
		if err := conn.Write(ctx, websocket.MessageText, []byte(`[null,"2","phoenix","heartbeat",{}]`)); err != nil {
			t.Fatal(err)
		}
		receive(`"phoenix"`)
	}
	f.say(t, session)
	receive(`"message_appended"`)
}

// serverID returns the server id in the topic of apps, from the answer of /pairing.
func (f *front) serverID(t *testing.T) string {
	t.Helper()
	return f.ask(t, http.MethodPost, "/pairing", `{}`, "server_id")
}

// The npm client of Phoenix Channels follows.
func (f *front) testApp(t *testing.T) {
	t.Setenv("NODE_EXTRA_CA_CERTS", f.ca)
	app := phxtest.Start(t, phxtest.Options{URL: strings.Replace(f.url("/bridge"), "https", "wss", 1), Package: phxtest.Packages[0], Vsn: "2.0.0"})
	app.Join("events:server:"+f.serverID(t), map[string]any{"token": f.token}, true)
	app.Until("joined")
	f.say(t, f.session(t))
	app.Until("event")
}

// Wrong tokens count for the address that the proxy saw, whatever address the client claims.
// Other clients are not delayed.
func (f *front) testGuesses(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("there is one address of loopback alone")
	}
	guess := func(c *http.Client, claims string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url("/pairing/claim"), strings.NewReader(`{"code": "ABCD-EFGHJKMNPQ", "device_name": "x"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Forwarded-For", claims)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	guesser, other := f.from("127.0.0.2"), f.from("127.0.0.3")
	defer guesser.CloseIdleConnections()
	defer other.CloseIdleConnections()
	status := 0
	for i := 0; i < 40 && status != http.StatusTooManyRequests; i++ {
		status = guess(guesser, fmt.Sprintf("198.51.100.%d", i))
	}
	if status != http.StatusTooManyRequests {
		t.Errorf("40 guesses, and the last is answered %d", status)
	}
	if status := guess(other, "127.0.0.2"); status != http.StatusUnauthorized {
		t.Errorf("another address is answered %d", status)
	}
}
