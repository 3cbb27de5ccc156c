// Package front runs servers behind a proxy, for tests: the samples of the documentation, with only
// addresses and paths replaced, and what clients do through them.
package front

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
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/phx/phxtest"
)

// silence is how long a stream, a poll and a socket are silent behind a proxy, unless
// LOQUAT_PROXY_SECONDS says otherwise.
const silence = time.Second

// Proxy is a program in front of servers.
type Proxy struct {
	Name  string
	start func(f *Front, sample string) *exec.Cmd
}

// Proxies are the programs that the documentation has samples for.
var Proxies = []Proxy{{"nginx", startNginx}, {"caddy", startCaddy}, {"haproxy", startHAProxy}}

// Front is servers behind a proxy.
type Front struct {
	Servers []*binary.Process
	Client  *http.Client // at 127.0.0.1

	t       *testing.T
	args    [][]string // of the servers
	dir     string
	port    string // of the proxy
	ca      string // file of the certificates that its own is made by
	token   string
	silence time.Duration
}

// name and origin are what the samples call the proxy.
const (
	name   = "chat.example.org"
	origin = "https://" + name
)

// New starts servers, each with a data directory of its own. config is the configuration of
// each, in which https://chat.example.org stands for the address of the proxy.
func New(t *testing.T, servers int, config string) *Front {
	t.Helper()
	_, port, err := net.SplitHostPort(binary.FreeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &Front{t: t, dir: t.TempDir(), port: port, silence: silence}
	if s := os.Getenv("LOQUAT_PROXY_SECONDS"); s != "" {
		seconds, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("LOQUAT_PROXY_SECONDS: %v", err)
		}
		f.silence = time.Duration(seconds) * time.Second
	}
	cfg := f.write("loquat.json", strings.ReplaceAll(config, origin, f.url("")))
	args := func(node int) []string {
		return []string{"--config", cfg, "--data", filepath.Join(f.dir, fmt.Sprint("data", node))}
	}
	var out, stderr bytes.Buffer
	if err := binary.Run(t.Context(), append([]string{"token", "new", "me"}, args(0)...), strings.NewReader(""), &out, &stderr); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	f.token = strings.TrimSpace(out.String())
	for node := range servers {
		f.args = append(f.args, append([]string{"serve", "--demo", "--listen", binary.FreeAddress(t)}, args(node)...))
		f.Servers = append(f.Servers, binary.Start(t, nil, f.args[node]...))
	}
	return f
}

// Restart starts a server that has ended, at the same address.
func (f *Front) Restart(server int) {
	f.t.Helper()
	f.Servers[server] = binary.Start(f.t, nil, f.args[server]...)
}

// API returns a client of the API behind the proxy.
func (f *Front) API() *client.Client {
	f.t.Helper()
	c, err := client.New(f.url(""), client.Options{Token: f.token, HTTPClient: f.Client})
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// Direct returns a client of a server, past the proxy.
func (f *Front) Direct(server int) *client.Client {
	f.t.Helper()
	c, err := client.New(f.Servers[server].URL, client.Options{Token: f.token})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(c.CloseIdleConnections)
	return c
}

// Post makes one call and does not repeat it. The caller closes the body.
func (f *Front) Post(ctx context.Context, path, body, key string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url(path), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+f.token)
	req.Header.Set("Idempotency-Key", key)
	return f.Client.Do(req)
}

func (f *Front) write(name, text string) string {
	f.t.Helper()
	return binary.WriteFile(f.t, filepath.Join(f.dir, name), text)
}

// Check makes the calls of all kinds.
func (f *Front) Check(t *testing.T) {
	t.Run("who may come in", f.access)
	t.Run("streams", f.stream)
	t.Run("polls", f.poll)
	t.Run("uploads", f.upload)
	if t.Run("sockets", f.socket) { // or an app would try again for ever
		t.Run("apps", f.app)
	}
	t.Run("guesses", f.guesses) // the last, because it makes an address wait
}

// Run runs a proxy with a sample until the test ends. addresses are the addresses of the servers
// in the sample. It skips the test where the proxy is not installed; if CI is set, it fails.
func (f *Front) Run(proxy Proxy, sample string, addresses ...string) {
	f.t.Helper()
	if _, err := exec.LookPath(proxy.Name); err != nil {
		if os.Getenv("CI") != "" {
			f.t.Fatalf("%s is not installed; .ci/install should have installed it", proxy.Name)
		}
		f.t.Skipf("skipped: %s is not installed", proxy.Name)
	}
	if len(addresses) != len(f.Servers) {
		f.t.Fatalf("%d addresses for %d servers", len(addresses), len(f.Servers))
	}
	for i, address := range addresses {
		sample = f.replace(sample, address, strings.TrimPrefix(f.Servers[i].URL, "http://"))
	}
	f.run(proxy.start(f, sample))
}

// replace replaces text that the sample must have.
func (f *Front) replace(sample, from, to string) string {
	f.t.Helper()
	if !strings.Contains(sample, from) {
		f.t.Fatalf("the sample has no %q", from)
	}
	return strings.ReplaceAll(sample, from, to)
}

// startNginx puts the sample into the http section that a distribution's nginx.conf has.
func startNginx(f *Front, sample string) *exec.Cmd {
	certificate, key := binary.SelfSigned(f.t, 1)
	f.ca = f.write("cert.pem", certificate)
	sample = f.replace(sample, "listen 443 ", "listen 127.0.0.1:"+f.port+" ")
	sample = f.replace(sample, "server_name "+name, "server_name localhost")
	sample = f.replace(sample, "/etc/letsencrypt/live/"+name+"/fullchain.pem", f.ca)
	sample = f.replace(sample, "/etc/letsencrypt/live/"+name+"/privkey.pem", f.write("key.pem", key))
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
func startCaddy(f *Front, sample string) *exec.Cmd {
	_, other, err := net.SplitHostPort(binary.FreeAddress(f.t))
	if err != nil {
		f.t.Fatal(err)
	}
	options := fmt.Sprintf("{\n\tadmin off\n\tdefault_bind 127.0.0.1\n\thttp_port %s\n\thttps_port %s\n\tlocal_certs\n\tskip_install_trust\n}\n", other, f.port)
	cfg := f.write("Caddyfile", options+f.replace(sample, name, "localhost"))
	f.ca = filepath.Join(f.dir, "caddy", "pki", "authorities", "local", "root.crt")
	cmd := exec.Command("caddy", "run", "--adapter", "caddyfile", "--config", cfg)
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+f.dir, "XDG_CONFIG_HOME="+f.dir, "HOME="+f.dir)
	return cmd
}

// startHAProxy runs the sample with its addresses and its certificate.
func startHAProxy(f *Front, sample string) *exec.Cmd {
	certificate, key := binary.SelfSigned(f.t, 1)
	f.ca = f.write("cert.pem", certificate)
	sample = f.replace(sample, "bind :443 ", "bind 127.0.0.1:"+f.port+" ")
	sample = f.replace(sample, "/etc/haproxy/"+name+".pem", f.write("both.pem", certificate+key))
	sample = f.replace(sample, "hdr Host "+name, "hdr Host localhost:"+f.port)
	return exec.Command("haproxy", "-db", "-f", f.write("haproxy.cfg", sample))
}

// run runs the proxy until the test ends, and waits until it answers.
func (f *Front) run(cmd *exec.Cmd) {
	f.t.Helper()
	log := &binary.LockedBuffer{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		f.Client.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		killer := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // how it ends is not Loquat's doing
		killer.Stop()
		if f.t.Failed() {
			f.t.Logf("the proxy says:\n%s", log)
		}
	})
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		f.Client = f.From("127.0.0.1")
		resp, err := f.Client.Get(f.url("/healthz"))
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

func (f *Front) url(path string) string { return "https://localhost:" + f.port + path }

// From returns a client at an address, which trusts the proxy's certificate and no other.
func (f *Front) From(address string) *http.Client {
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

// Call makes a call with the token, and with further headers, "Name: value".
func (f *Front) Call(t *testing.T, method, path string, body io.Reader, headers ...string) *http.Response {
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
	resp, err := f.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

// Ask makes a call that has to succeed, and reads a field of its answer.
func (f *Front) Ask(t *testing.T, method, path, body, field string) string {
	t.Helper()
	resp := f.Call(t, method, path, strings.NewReader(body))
	var answer map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode >= 300 {
		t.Fatalf("%s %s: %s %v %v", method, path, resp.Status, answer, err)
	}
	value, _ := answer[field].(string)
	return value
}

// Session creates a session.
func (f *Front) Session(t *testing.T) string {
	t.Helper()
	return f.Ask(t, http.MethodPost, "/sessions", `{}`, "session_id")
}

// say appends a message to a session.
func (f *Front) say(t *testing.T, session string) {
	t.Helper()
	f.Ask(t, http.MethodPost, "/sessions/"+session+"/messages", `{"role": "user", "content": "hello"}`, "")
}

// access checks that tokens, host names and origins are checked as without a proxy, and that the
// cookie is Secure.
func (f *Front) access(t *testing.T) {
	own := f.url("")
	resp := f.Call(t, http.MethodPost, "/auth/session", strings.NewReader(`{"token": "`+f.token+`"}`), "Authorization: ", "Origin: "+own)
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusOK || len(cookies) != 1 || !cookies[0].Secure || !strings.HasPrefix(cookies[0].Name, "__Host-") {
		t.Fatalf("signing in: %s %v", resp.Status, cookies)
	}
	if len(f.Servers) > 1 {
		time.Sleep(time.Second) // until all nodes know the cookie
	}
	cookie := "Cookie: " + cookies[0].Name + "=" + cookies[0].Value
	for _, c := range []struct {
		what    string
		headers []string
		want    int
	}{
		{"with a token", nil, http.StatusCreated},
		{"without", []string{"Authorization: "}, http.StatusUnauthorized},
		{"with the cookie", []string{"Authorization: ", cookie, "Origin: " + own}, http.StatusCreated},
		{"with the cookie from elsewhere", []string{"Authorization: ", cookie, "Origin: https://evil.example"}, http.StatusForbidden},
		{"from elsewhere", []string{"Origin: https://evil.example"}, http.StatusForbidden},
	} {
		if resp := f.Call(t, http.MethodPost, "/sessions", strings.NewReader(`{}`), c.headers...); resp.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", c.what, resp.Status, c.want)
		}
	}
	// A proxy may refuse a name that it does not know, or leave that to Loquat.
	resp = f.Call(t, http.MethodGet, "/sessions", nil, "Host: evil.example")
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusForbidden && len(body) > 0 {
		t.Errorf("under another name: %s %s", resp.Status, body)
	}
}

// stream checks that events arrive at once, even after a long silence.
func (f *Front) stream(t *testing.T) {
	session := f.Session(t)
	resp := f.Call(t, http.MethodGet, "/events/stream?session_id="+session, nil)
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
			// Another node may have created the session, and this one may hear of that only now.
			created := strings.Contains(line, `"type":"session_created"`) || strings.Contains(line, `"message_count":0`)
			if !ok || strings.HasPrefix(line, "data: {") && !strings.Contains(line, "{}") && !created {
				t.Fatalf("after %s of silence: %q", time.Since(began), line)
			}
		case <-time.After(f.silence - time.Since(began)):
		}
	}
	f.say(t, session)
	until(`"message_appended"`)
}

// poll checks that a long poll waits, and that it answers as soon as there is something.
func (f *Front) poll(t *testing.T) {
	session := f.Session(t)
	at := f.Ask(t, http.MethodGet, "/sessions/"+session, "", "cursor_event_id")
	poll := "/events?session_id=" + session + "&since_id=" + at + "&wait="
	began := time.Now()
	f.Ask(t, http.MethodGet, fmt.Sprint(poll, f.silence.Seconds()), "", "")
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
	resp := f.Call(t, http.MethodGet, poll+"60", nil)
	if body, err := io.ReadAll(resp.Body); err != nil || !strings.Contains(string(body), "message_appended") {
		t.Errorf("after %s it answers %s %v", time.Since(began), body, err)
	}
	<-said
}

// upload checks that an image larger than the proxies' default limit can be uploaded and read back.
func (f *Front) upload(t *testing.T) {
	picture := binary.Photo(1, 12<<20)
	session := f.Session(t)
	resp := f.Call(t, http.MethodPost, "/sessions/"+session+"/assets", bytes.NewReader(picture), "Content-Type: image/png")
	var kept loquat.Asset
	if err := json.NewDecoder(resp.Body).Decode(&kept); err != nil || resp.StatusCode != http.StatusCreated {
		t.Fatalf("%s %+v %v", resp.Status, kept, err)
	}
	resp = f.Call(t, http.MethodGet, "/sessions/"+session+"/assets/"+kept.AssetID, nil)
	if b, err := io.ReadAll(resp.Body); err != nil || !bytes.Equal(b, picture) {
		t.Errorf("what comes back differs (%s, %v)", resp.Status, err)
	}
}

// socket checks that a socket opens, joins, survives a silence and receives events.
func (f *Front) socket(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), f.silence+time.Minute)
	defer cancel()
	h1 := f.From("127.0.0.1")
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
	session := f.Session(t)
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
func (f *Front) serverID(t *testing.T) string {
	t.Helper()
	return f.Ask(t, http.MethodPost, "/pairing", `{}`, "server_id")
}

// app checks that the npm client of Phoenix Channels follows.
func (f *Front) app(t *testing.T) {
	t.Setenv("NODE_EXTRA_CA_CERTS", f.ca)
	app := phxtest.Start(t, phxtest.Options{URL: strings.Replace(f.url("/bridge"), "https", "wss", 1), Package: phxtest.Packages[0], Vsn: "2.0.0"})
	app.Join("events:server:"+f.serverID(t), map[string]any{"token": f.token}, true)
	app.Until("joined")
	f.say(t, f.Session(t))
	app.Until("event")
}

// guesses checks that wrong codes count for the address that the proxy saw, whatever address
// the client claims, and that other clients are not delayed.
func (f *Front) guesses(t *testing.T) {
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
	guesser, other := f.From("127.0.0.2"), f.From("127.0.0.3")
	defer guesser.CloseIdleConnections()
	defer other.CloseIdleConnections()
	status := 0
	for i := 0; i < 40*len(f.Servers) && status != http.StatusTooManyRequests; i++ {
		status = guess(guesser, fmt.Sprintf("198.51.100.%d", i))
	}
	if status != http.StatusTooManyRequests {
		t.Errorf("the last of %d guesses is answered %d", 40*len(f.Servers), status)
	}
	if status := guess(other, "127.0.0.2"); status != http.StatusUnauthorized {
		t.Errorf("another address is answered %d", status)
	}
}
