//go:build unix

// Package monitoring_test checks the alert rules and the dashboard of docs/monitoring against real servers, with a real
// Prometheus.
package monitoring_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/backend"
	"loquat/internal/client"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}

const (
	folder    = "../../../docs/monitoring/"
	theToken  = "the-token-of-monitoring"
	noBackend = "http://127.0.0.1:1/v1"
)

// program returns the path of a program of Prometheus. The test is skipped without it; if CI is set, it fails.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CI") != "" {
		t.Fatal(err)
	}
	t.Skipf("skipped: %s is not installed", name)
	return ""
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(folder + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var (
	metricName = regexp.MustCompile(`\bloquat_[a-z_]+`)
	alertName  = regexp.MustCompile(`(?m)- alert: (\w+)$`)
	described  = regexp.MustCompile(`(?m)^# HELP (\S+) `)
)

// faulty starts a server whose configuration has a fault.
func faulty(t *testing.T, env []string, config string) *binary.Process {
	t.Helper()
	cfg := binary.WriteConfig(t, config)
	return binary.Start(t, env, "serve", "--config", cfg, "--listen", "127.0.0.1:0", "--data", t.TempDir())
}

func providers(url, more string) string {
	return fmt.Sprintf(`"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": %q%s}}`, url, more)
}

// deadPlugin makes a plugin that ends at once, and returns its entry.
func deadPlugin(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	binary.WriteFile(t, filepath.Join(dir, "plugin.json"), `{"name": "dead", "kind": "tool", "command": "false"}`)
	return "path:" + dir
}

// strained is a server without room: of disk, memory and followers, with a plugin that is down and a bridge that is away.
func strained(t *testing.T) *binary.Process {
	t.Helper()
	return faulty(t, []string{"GOMEMLIMIT=8MiB"}, fmt.Sprintf(`{%s, "plugins": ["loquat.providers.reference_generic_compatible", %q],
		"limits": {"min_free_disk_bytes": 1125899906842624, "max_followers": 1}, "bridge": {"url": "ws://127.0.0.1:1/bridge", "server_id": "home", "token": "x"}}`, providers(noBackend, ""), deadPlugin(t)))
}

// lonelyBridge is a bridge to which its server does not connect.
func lonelyBridge(t *testing.T) (url string) {
	t.Helper()
	cfg := filepath.Join(t.TempDir(), "bridge.json")
	text := fmt.Sprintf(`{"bridge": {"servers": {"home": "token-of-home"}}, "server": {"auth_tokens": [{"name": "m", "token": %q, "scope": "read"}]}}`, theToken)
	binary.WriteFile(t, cfg, text)
	return binary.Start(t, nil, "bridge", "--config", cfg, "--listen", "127.0.0.1:0").URL
}

// Every metric of the rules and of the dashboard exists, and Prometheus accepts the rules.
func TestMetricsExist(t *testing.T) {
	promtool := program(t, "promtool")
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", folder+"alerts.yml").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard); err != nil || len(dashboard.Panels) < 20 {
		t.Fatalf("the dashboard: %v, %d panels", err, len(dashboard.Panels))
	}
	used := map[string]bool{}
	for _, name := range metricName.FindAllString(read(t, "alerts.yml"), -1) {
		used[name] = true
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			for _, name := range metricName.FindAllString(target.Expr, -1) {
				used[name] = true
			}
		}
	}
	_, url := pgtest.Shared(t).Database(t)
	exist := map[string]bool{}
	for _, at := range []string{strained(t).URL, lonelyBridge(t), usedServer(t), faulty(t, nil, fmt.Sprintf(`{%s, "store": {"url": %q}}`, providers(noBackend, ""), url)).URL} {
		maps.Copy(exist, metricsAt(t, at))
	}
	for name := range used {
		base := name
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, part)
		}
		if !exist[name] && !exist[base] {
			t.Errorf("no server has the metric %s", name)
		}
	}
	for name := range exist {
		if documented := strings.Contains(read(t, "../monitoring.md")+read(t, "../bridge.md"), "`"+name+"`"); strings.HasPrefix(name, "loquat_") && !documented {
			t.Errorf("the metric %s is not documented", name)
		}
	}
}

// usedServer starts a server and runs a request on it: some metrics exist only after that.
func usedServer(t *testing.T) (url string) {
	t.Helper()
	scripted := binary.ScriptedBackend(t, backend.Options{Script: json.RawMessage(`{"text": "ok", "rate": 0}`)})
	url = faulty(t, nil, fmt.Sprintf(`{%s, "prices": {"demo": {"input": 1, "output": 1}}}`, providers(scripted+"/v1", ""))).URL
	c := binary.NewClient(t, url)
	binary.FollowRequest(t.Context(), t, c, asked(t, c).ActiveRequestID)
	return url
}

func metricsAt(t *testing.T, url string) map[string]bool {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	status, body := 0, ""
	for _, token := range []string{"", theToken} {
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if status, body = resp.StatusCode, readAll(resp); status == http.StatusOK {
			break
		}
	}
	out := map[string]bool{}
	for _, m := range described.FindAllStringSubmatch(body, -1) {
		out[m[1]] = true
	}
	if status != http.StatusOK || len(out) == 0 {
		t.Fatalf("%s/metrics: %d %s", url, status, body)
	}
	return out
}

func readAll(resp *http.Response) string {
	defer resp.Body.Close()
	all, _ := io.ReadAll(resp.Body) // a test looks for something in it
	return string(all)
}

// prometheus runs Prometheus with the rules, whose times are shortened, and returns its URL.
func prometheus(t *testing.T, targets map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	rules := read(t, "alerts.yml")
	rules = regexp.MustCompile(`for: \w+`).ReplaceAllString(rules, "for: 1s")
	rules = regexp.MustCompile(`\[\w+\]`).ReplaceAllString(rules, "[15s]")
	var jobs strings.Builder
	for job, at := range targets {
		fmt.Fprintf(&jobs, "  - job_name: %s\n    static_configs: [{targets: [%s]}]\n", job, at)
		if job == "bridge" {
			fmt.Fprintf(&jobs, "    authorization: {credentials: %s}\n", theToken)
		}
	}
	config := "global: {scrape_interval: 500ms, scrape_timeout: 400ms, evaluation_interval: 500ms}\nrule_files: [alerts.yml]\nscrape_configs:\n" + jobs.String()
	binary.WriteFiles(t, dir, map[string]string{"alerts.yml": rules, "prometheus.yml": config})
	address := binary.FreeAddress(t)
	log := &binary.LockedBuffer{}
	cmd := exec.Command(program(t, "prometheus"), "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", address)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus says:\n%s", log)
		}
	})
	return "http://" + address
}

// firing returns the alerts that fire.
func firing(url string) (names []string) {
	resp, err := http.Get(url + "/api/v1/alerts")
	if err != nil {
		return nil
	}
	var answer struct {
		Data struct {
			Alerts []struct {
				State  string
				Labels map[string]string
			}
		}
	}
	_ = json.Unmarshal([]byte(readAll(resp)), &answer)
	for _, a := range answer.Data.Alerts {
		if a.State == "firing" {
			names = append(names, a.Labels["alertname"])
		}
	}
	return names
}

// isWatched reports whether Prometheus reads the metrics of a server, and knows the rules.
func isWatched(t *testing.T, prometheus string) bool {
	t.Helper()
	get := func(path string) string {
		resp, err := http.Get(prometheus + path)
		if err != nil {
			t.Fatal(err)
		}
		return readAll(resp)
	}
	return strings.Contains(get("/api/v1/targets?state=active"), `"health":"up"`) && strings.Contains(get("/api/v1/rules?type=alert"), "LoquatStoreUnusable")
}

// collectFiring collects the alerts that fire at any time until the test ends.
func collectFiring(t *testing.T, url string) *sync.Map {
	t.Helper()
	var fired sync.Map
	over, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			for _, name := range firing(url) {
				fired.Store(name, true)
			}
		}
	}()
	t.Cleanup(func() {
		close(over)
		<-done
	})
	return &fired
}

// simulated are alerts whose faults a test cannot provoke: TestSimulatedAlerts gives the rules the values instead.
var simulated = []string{"LoquatNotificationsSlow", "LoquatEventsLate"}

// Each alert fires when its fault is provoked, and none does at a server without one.
func TestAlertsFire(t *testing.T) {
	program(t, "prometheus")
	town := newTown(t)
	url := prometheus(t, map[string]string{"loquat": town.targets(), "bridge": strings.TrimPrefix(lonelyBridge(t), "http://")})
	quiet := prometheus(t, map[string]string{"loquat": strings.TrimPrefix(town.sound.URL, "http://")})
	fired := collectFiring(t, url)
	town.provoke(t)
	var want []string
	for _, m := range alertName.FindAllStringSubmatch(read(t, "alerts.yml"), -1) {
		if !slices.Contains(simulated, m[1]) {
			want = append(want, m[1])
		}
	}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(want), func(name string) bool { _, ok := fired.Load(name); return ok })
	}
	for end := time.Now().Add(time.Minute); len(missing()) > 0 && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
	}
	if left := missing(); len(left) > 0 {
		t.Errorf("these alerts do not fire: %v", left)
	}
	if names := firing(quiet); len(names) > 0 {
		t.Errorf("at a server without a fault these fire: %v", names)
	}
	if !isWatched(t, quiet) {
		t.Error("the server without a fault is not watched, so nothing could fire")
	}
}

// The rules that TestAlertsFire leaves out fire at the values that they are about.
func TestSimulatedAlerts(t *testing.T) {
	promtool := program(t, "promtool")
	rules, err := filepath.Abs(folder + "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	test := fmt.Sprintf(`
rule_files: [%s]
tests:
  - interval: 15s
    input_series:
      - series: 'loquat_store_tail_lag_events{instance="a"}'
        values: '20000x40'
      - series: 'loquat_store_notify_lag_seconds_bucket{instance="a", le="1"}'
        values: '0x40'
      - series: 'loquat_store_notify_lag_seconds_bucket{instance="a", le="2"}'
        values: '0+10x40'
      - series: 'loquat_store_notify_lag_seconds_bucket{instance="a", le="+Inf"}'
        values: '0+10x40'
    promql_expr_test:
      - expr: count by (alertname) (ALERTS{alertstate="firing"})
        eval_time: 9m
        exp_samples:
          - labels: '{alertname="LoquatEventsLate"}'
            value: 1
          - labels: '{alertname="LoquatNotificationsSlow"}'
            value: 1
`, rules)
	file := filepath.Join(t.TempDir(), "test.yml")
	binary.WriteFile(t, file, test)
	if out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// session sends a message in a new session and does not wait for the end.
func session(t *testing.T, c *client.Client) {
	t.Helper()
	if _, err := c.CreateSession(t.Context(), loquat.NewSession{Send: &loquat.Send{Content: new("hi")}}); err != nil {
		t.Log(err) // some of these servers refuse it
	}
}
