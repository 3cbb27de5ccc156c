package upgrade_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

var source = flag.String("source", "", "checkout of the older version, whose pages TestRecordContract reads")

// everyKey is a configuration with every key of 3f0b70a that a server may have: its store.url and
// bridge.servers belong to others.
const everyKey = `{
	"plugin_cache_dir": "DIR/cache",
	"plugins": ["loquat.providers.reference_generic_compatible", "loquat.features.request_options", "loquat.features.compact_range", "path:DIR/dice"],
	"server": {
		"listen": "0.0.0.0:9000", "data_dir": "/data", "public_url": "https://chat.example.org",
		"auth_tokens": [{"name": "one", "token": "a-secret-of-more-than-16-characters", "scope": "session", "session_id": "s"}],
		"allowed_origins": ["https://other.example.org:8443"], "trusted_proxies": ["127.0.0.1", "10.0.0.0/8"],
		"tls": {"cert_file": "DIR/cert.pem", "key_file": "DIR/key.pem"}, "shutdown_grace_seconds": 1.5
	},
	"bridge": {"url": "wss://bridge.example.org/bridge", "server_id": "home", "token": "another-secret-of-the-bridge"},
	"limits": {"max_body_bytes": 2048, "max_asset_bytes": 4096, "max_response_bytes": 8192, "max_tool_rounds": 3},
	"events": {"retention_seconds": 60},
	"providers": {"main": {
		"provider": "reference_generic_compatible", "model": "m", "base_url": "http://127.0.0.1:1/v1", "api_key": "sk-of-the-file",
		"endpoint_options": {"here": "http://127.0.0.1:1/v1"}, "timeout": 2.5, "debug_stream": true, "min_request_interval_seconds": 0.5,
		"rate_limit_retry_delays_seconds": "1, 2.5", "respect_retry_after_header": false, "retry_on_status": {"503": [1, 2]}, "retry_on_timeout": [3],
		"stream_recovery": {"mode": "aggressive", "max_retries": 4}, "allow_image_attachment_base64": false, "allow_image_attachment_url": false,
		"include_usage": false, "empty_content": "string", "reasoning_echo": "always", "merge_system_messages": true,
		"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}], "tool_choice": "none",
		"request_options": {"temperature": 0.5, "stop": null}
	}},
	"agents": {"default": {"provider": "main", "model": "n", "timeout": 5, "dice_sides": 20}},
	"temperature_of_a_plugin": 1
}`

// TestRecordContract writes testdata/contract-of-VERSION.json.gz, what the users, clients and plugins of a version rely
// on, and a backup. It needs python3 and Chromium.
func TestRecordContract(t *testing.T) {
	if *source == "" {
		t.Skip("-source names no checkout")
	}
	program := recordedProgram(t)
	if *version == "" {
		t.Fatal("-record needs -version")
	}
	c := contract{Version: *version, Commands: map[string]map[string]flagOf{}, Metrics: metricsOf(scrape(t, program)), Files: map[string]string{}}
	recordCommands(t, &c, program, "loquat")
	for _, name := range []string{"plugins.md", "clients.md"} {
		for _, m := range regexp.MustCompile("(?s)<!-- (\\S+) -->\n```\\w+\n(.*?)\n```\n").FindAllStringSubmatch(sourcePage(t, "docs/"+name), -1) {
			c.Files[m[1]] = m[2] + "\n"
		}
	}
	for name, text := range showcase {
		c.Files[name] = text
	}
	c.Files["showcase/showcase.py"] = sourcePage(t, "cmd/loquat/testdata/showcase/showcase.py")
	c.Events = documentedEvents(t)
	c.Configs = recordConfigs(t, c, program)
	recordCalls(t, &c, program)
	if err := writeJSON(contractOf(*version), c); err != nil {
		t.Fatal(err)
	}
}

var subcommand = regexp.MustCompile(`(?m)^  ([a-z]+)\s{2,}\S`)

// recordCommands adds the flags of a command and of those below it.
func recordCommands(t *testing.T, c *contract, program, command string) {
	t.Helper()
	flags, help := flagsOf(t, program, command)
	if flags == nil {
		t.Fatalf("the help of %s is\n%s", command, help)
	}
	c.Commands[command] = flags
	_, list, _ := strings.Cut(help, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for _, m := range subcommand.FindAllStringSubmatch(list, -1) {
		if m[1] != "help" && m[1] != "completion" {
			recordCommands(t, c, program, command+" "+m[1])
		}
	}
}

func sourcePage(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(*source, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// documentedEvents returns the fields in the table of docs/events.md.
func documentedEvents(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	_, table, _ := strings.Cut(sourcePage(t, "docs/events.md"), "## Types\n")
	table, _, _ = strings.Cut(table, "\n## ")
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\|[^|]*\\|([^|]*)\\|$").FindAllStringSubmatch(table, -1) {
		found[row[1]] = []string{"event_id", "type", "session_id"}
		for part := range strings.SplitSeq(row[2], ";") {
			names, _, _ := strings.Cut(part, ":") // after it, the fields of a field
			names = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(names, "")
			for _, name := range regexp.MustCompile("`(\\w+)\\??`").FindAllStringSubmatch(names, -1) {
				if !slices.Contains(found[row[1]], name[1]) {
					found[row[1]] = append(found[row[1]], name[1])
				}
			}
		}
	}
	if len(found) < 15 {
		t.Fatalf("docs/events.md has %d types", len(found))
	}
	return found
}

// recordConfigs returns the configurations of the pages, and one with every key.
func recordConfigs(t *testing.T, c contract, program string) (all []configured) {
	t.Helper()
	for _, key := range regexp.MustCompile("(?m)^\\| `([a-z_.]+)` \\| [a-z ]+ \\|").FindAllStringSubmatch(sourcePage(t, "docs/config.md"), -1) {
		last := key[1][strings.LastIndex(key[1], ".")+1:]
		if !strings.Contains(everyKey, `"`+last+`"`) && key[1] != "store.url" && key[1] != "bridge.servers" {
			t.Errorf("the configuration with every key has no %s", key[1])
		}
	}
	pages, err := filepath.Glob(filepath.Join(*source, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := folders(t, c)
	texts := []configured{{Place: "every key", Text: everyKey}}
	for _, path := range append(pages, filepath.Join(*source, "README.md")) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range regexp.MustCompile("(?ms)^```json\n(.*?)^```").FindAllStringSubmatch(string(text), -1) {
			texts = append(texts, configured{Place: fmt.Sprint(filepath.Base(path), " ", i), Text: withProvider(block[1])})
		}
	}
	for _, one := range texts {
		if one.Text == "" {
			continue
		}
		one.Text = strings.NewReplacer("/run/secrets/", "DIR/", "/srv/plugins/", "DIR/").Replace(one.Text)
		var shown object
		one.Checked, shown = one.shown(t, program, dir)
		if one.Checked != "loquat.json: ok\n" && one.Place != "every key" {
			t.Errorf("%s: %s", one.Place, one.Checked)
		}
		if one.Shown, err = json.Marshal(shown); err != nil {
			t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// withProvider completes a part of a configuration. It returns "" for other JSON.
func withProvider(text string) string {
	var o object
	if json.Unmarshal([]byte(text), &o) != nil || o["name"] != nil {
		return ""
	}
	for _, key := range []string{"server", "plugins", "bridge", "providers"} {
		if o[key] != nil && o["providers"] == nil && field(o, "bridge")["servers"] == nil {
			return `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "m"}}, ` + strings.TrimPrefix(strings.TrimSpace(text), "{")
		}
	}
	if o["providers"] == nil {
		return ""
	}
	return text
}

// recordCalls lets the clients of the version work with its server.
func recordCalls(t *testing.T, c *contract, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := &recorder{t: t, ctx: ctx, dir: t.TempDir(), program: program, out: recording{Tokens: map[string]string{}}}
	r.backend = r.launch("backend", "--listen", "127.0.0.1:0", "--rate", "300").URL
	r.serveWith("data", withPlugins(t, *c, r.backend))
	tapped := newTap(t, r.server.URL)
	run := func(client string, args ...string) string {
		t.Helper()
		tapped.client = client
		return output(t, program, []string{"LOQUAT_SERVER=" + tapped.url}, args...)
	}
	run("loquat chat", "chat", "What is a loquat?")
	run("loquat chat --no-stream", "chat", "--no-stream", "--agent", "brief", "What is a plum?")
	run("loquat events", "events", "--since", "0", "--json")
	tapped.client = "the page"
	usePage(t, tapped.url)
	c.Elements = elementsOf(t, r.server.URL)
	_, text := binary.GetOnce(t, r.server.URL+"/openapi.json")
	c.OpenAPI = json.RawMessage(text)
	recordBackup(t, c, r)
	c.Frames = map[string]object{}
	for name, payload := range framesOfApp(t, r.server.URL) {
		c.Frames[name] = payload.(object)
	}
	run("loquat pair", "pair", "--json")
	secret := strings.Fields(run("loquat token", "token", "new", "first"))
	if len(secret) != 1 {
		t.Fatalf("token new prints %q", secret)
	}
	run("loquat token", "token", "list", "--token", secret[0])
	run("loquat token", "token", "new", "reader", "--scope", "read", "--expires", "720h", "--token", secret[0])
	c.Calls = tapped.kept()
}

// recordBackup writes testdata/backup-of-VERSION.tar.gz, a backup of a running server.
func recordBackup(t *testing.T, c *contract, r *recorder) {
	t.Helper()
	dir := filepath.Join(r.dir, "backup")
	output(t, r.program, nil, "backup", dir, "--data", filepath.Join(r.dir, "data"))
	r.must(pack(backupOf(*version), dir))
	list, err := load(r.ctx, r.server.URL, "", "/sessions?limit=200")
	r.must(err)
	r.must(json.Unmarshal(list.Body, &c.Backup.Sessions))
	window, err := r.c.Events(r.ctx, client.Query{})
	r.must(err)
	c.Backup.Latest = window.LatestEventID
}

// usePage opens the page in Chromium, sends a message in a new session, edits, and asks again.
func usePage(t *testing.T, url string) {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.Flag("disable-dev-shm-usage", true))
	ctx, stop := chromedp.NewExecAllocator(ctx, options...)
	defer stop()
	ctx, end := chromedp.NewContext(ctx)
	defer end()
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
	}
	do(chromedp.Navigate(url))
	until := func(expression string) {
		t.Helper()
		binary.Eventually(t, expression, func() bool {
			holds, err := chromedp.Run(ctx, chromedp.Evaluate[bool]("Boolean("+expression+")"))
			return err == nil && holds
		})
	}
	until(`document.querySelector("#state").dataset.state === "live"`)
	do(chromedp.Click(chromedp.CSS("#new"), chromedp.NodeVisible))
	do(chromedp.SendKeys(chromedp.CSS("#content"), "From the page.", chromedp.NodeVisible), chromedp.Click(chromedp.CSS("#send"), chromedp.NodeVisible))
	until(`document.querySelectorAll("#transcript > li").length >= 2 && document.querySelector("#stop").hidden`)
}
