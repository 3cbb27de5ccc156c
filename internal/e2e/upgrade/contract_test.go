package upgrade_test

import (
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/e2e/binary"
)

// contract is what users, clients and plugins of a version of the program rely on.
type contract struct {
	Version  string                       `json:"version"`
	OpenAPI  json.RawMessage              `json:"openapi"`
	Events   map[string][]string          `json:"events"`   // the fields of each type in docs/events.md
	Commands map[string]map[string]flagOf `json:"commands"` // their flags
	Metrics  map[string][]string          `json:"metrics"`  // their labels
	Configs  []configured                 `json:"configs"`
	Files    map[string]string            `json:"files"`    // the clients and plugins of the pages
	Elements map[string]object            `json:"elements"` // of plugins, by the route that serves them
	Frames   map[string]object            `json:"frames"`   // of the bridge, for an app
	Backup   backedUp                     `json:"backup"`
	Calls    []exchange                   `json:"calls"` // of the version's own clients
}

// flagOf is a flag of a command.
type flagOf struct {
	Value   bool   `json:"value"` // it takes one
	Default string `json:"default,omitempty"`
}

// configured is a configuration, with what the version made of it. In place of the folders that it
// names stands DIR.
type configured struct {
	Place   string          `json:"place"`
	Text    string          `json:"text"`
	Checked string          `json:"checked"` // by config check
	Shown   json.RawMessage `json:"shown"`   // by config show
}

// backedUp is what a version served when it made a backup.
type backedUp struct {
	Latest   loquat.EventID `json:"latest"`
	Sessions object         `json:"sessions"`
}

// backupOf returns the file that holds the backup of a version, compressed.
func backupOf(version string) string {
	return filepath.Join("testdata", "backup-of-"+version+".tar.gz")
}

func contractOf(version string) string {
	return filepath.Join("testdata", "contract-of-"+version+".json.gz")
}

// decided lists what has changed on purpose since 3f0b70a, by its place. CHANGELOG.md says what to do where
// somebody has to do something.
var decided = []struct{ place, why string }{
	{`api GET /(\w+\.(js|css|svg))?`, "the document has no files of the page any more; a page that is open goes on with the files that it has"},
	{`api GET /bridge/websocket`, "the document has no route that does not speak HTTP; TestAppsOfOlderVersions uses it"},
	{`api GET /events(/stream)? query since_id pattern`, "takes fewer digits, too"},
	{`api byClient (NewSessionBody.session_id|SendBody.request_id) pattern`, "takes an empty text, too"},
	{`api schema \w+`, "schemas have other names"},
	{`command loquat pair --scope`, "without a value it depends on --user; without --user it is read as before"},
	{`plugin /sessions/s/ui-schema.loquat.providers.reference_generic_compatible .*\.(label|description)`, "texts that people read"},
	{`plugin /sessions/s/ui-schema.loquat.features.compact_range .*\.dialog\.(message|inputs)`, "texts that people read, and an example that did not fit"},
	{`config .limits.max_response_bytes`, "its default is 64 MiB"},
}

// reportBreaks reports what has changed, unless that was decided. The kind begins the place of each.
func reportBreaks(t *testing.T, kind string, breaks map[string]string) {
	t.Helper()
	used := map[string]bool{}
	for place, what := range breaks {
		known := false
		for _, d := range decided {
			if regexp.MustCompile("^" + d.place + "$").MatchString(kind + " " + place) {
				used[d.place], known = true, true
			}
		}
		if !known {
			t.Errorf("%s %s: %s", kind, place, what)
		}
	}
	for _, d := range decided {
		if strings.HasPrefix(d.place, kind+" ") && !used[d.place] {
			t.Errorf("nothing has changed at %s; leave it out of what was decided", d.place)
		}
	}
}

// output runs a program, which must succeed, and returns what it prints.
func output(t *testing.T, program string, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(binary.CleanEnv(), env...)
	out, err := cmd.Output()
	if err != nil {
		var said []byte
		if exit, ok := err.(*exec.ExitError); ok {
			said = exit.Stderr
		}
		t.Fatalf("%v: %v\n%s%s", args, err, out, said)
	}
	return string(out)
}

func current(t *testing.T) string {
	t.Helper()
	program, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// Clients of an older version, and clients generated from its OpenAPI document, find everything in
// the document of this one.
func TestAPIOfOlderVersions(t *testing.T) {
	t.Parallel()
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		breaks, err := breaksOfAPI(c.OpenAPI, json.RawMessage(output(t, current(t), nil, "openapi")))
		if err != nil {
			t.Fatal(err)
		}
		reportBreaks(t, "api", breaks)
	})
}

// Each type of event still has the fields that the pages of the older version name.
func TestEventFieldsOfOlderVersions(t *testing.T) {
	t.Parallel()
	var document object
	if err := json.Unmarshal([]byte(output(t, current(t), nil, "openapi")), &document); err != nil {
		t.Fatal(err)
	}
	variants := variantsOf(document, resolve(document, object{"$ref": "#/components/schemas/Event"}))
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		for kind, fields := range c.Events {
			for _, name := range fields {
				if field(field(variants[kind], "properties"), name) == nil {
					t.Errorf("%s events have no %s any more", kind, name)
				}
			}
		}
	})
}

var (
	flagLine    = regexp.MustCompile(`(?m)^\s+(?:-\w, )?--([\w-]+)(?: (\S+))?(?:\s{2,}(.*))?$`)
	flagDefault = regexp.MustCompile(`\(default "?([^:"]*)"?\)$`)
)

// flagsOf returns the flags of a command of a program, or nil if there is no such command, and its help.
func flagsOf(t *testing.T, program, command string) (flags map[string]flagOf, help string) {
	t.Helper()
	help = output(t, program, nil, append(strings.Fields(command)[1:], "--help")...)
	if !strings.Contains(help, "\n  "+command+" ") {
		return nil, help
	}
	flags = map[string]flagOf{}
	for _, m := range flagLine.FindAllStringSubmatch(help, -1) {
		f := flagOf{Value: m[2] != ""}
		if byDefault := flagDefault.FindStringSubmatch(m[3]); byDefault != nil {
			f.Default = byDefault[1]
		}
		flags[m[1]] = f
	}
	return flags, help
}

// Every command and every flag of an older version is there, and means the same without a value. So
// are the variables of the environment, which every flag has.
func TestCommandsOfOlderVersions(t *testing.T) {
	t.Parallel()
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		breaks := map[string]string{}
		for command, flags := range c.Commands {
			now, _ := flagsOf(t, current(t), command)
			if now == nil {
				breaks[command] = "is gone"
			}
			for name, old := range flags {
				switch is, ok := now[name]; {
				case !ok:
					breaks[command+" --"+name] = "is gone"
				case is != old:
					breaks[command+" --"+name] = "has changed"
				}
			}
		}
		reportBreaks(t, "command", breaks)
	})
}

var sample = regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`)

// metricsOf returns the labels of the metrics that a server serves, as far as the pages name them.
func metricsOf(text string) map[string][]string {
	found := map[string][]string{}
	for _, m := range sample.FindAllStringSubmatch(text, -1) {
		if !strings.HasPrefix(m[1], "loquat_") && m[1] != "go_goroutines" && m[1] != "process_resident_memory_bytes" {
			continue
		}
		labels := found[m[1]]
		for _, label := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, label[1]) {
				labels = append(labels, label[1])
			}
		}
		slices.Sort(labels)
		found[m[1]] = labels
	}
	return found
}

// folders makes the folders and files that the configurations of the pages name.
func folders(t *testing.T, c contract) (dir string) {
	t.Helper()
	dir = t.TempDir()
	certificate, key := binary.SelfSigned(t, 1)
	binary.WriteFiles(t, dir, map[string]string{"loquat-admin": "a-long-secret-of-a-file\n", "cert.pem": certificate, "key.pem": key})
	for _, name := range []string{"dice", "weather"} {
		pluginOf(t, c, "dice", filepath.Join(dir, name), `"name": "dice"`, `"name": "`+name+`"`)
	}
	return dir
}

// pluginOf writes a plugin of the pages of a version to a folder, with other words in its files.
func pluginOf(t *testing.T, c contract, name, dir string, words ...string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	found := 0
	for path, text := range c.Files {
		if rest, ok := strings.CutPrefix(path, name+"/"); ok {
			found++
			binary.WriteFiles(t, dir, map[string]string{rest: strings.NewReplacer(words...).Replace(text)})
		}
	}
	if found == 0 {
		t.Fatalf("no files of the plugin %s are recorded", name)
	}
}

var variable = regexp.MustCompile(`\$\{(\w+)`)

// shown lets a program check a configuration and returns what it checks and shows.
func (c configured) shown(t *testing.T, program, dir string) (checked string, shown object) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "loquat.json")
	binary.WriteFiles(t, filepath.Dir(file), map[string]string{"loquat.json": strings.ReplaceAll(c.Text, "DIR/", dir+"/")})
	var env []string
	for _, m := range variable.FindAllStringSubmatch(c.Text, -1) {
		env = append(env, m[1]+"=the-value-of-a-variable")
	}
	checked = output(t, program, env, "config", "check", file)
	text := strings.ReplaceAll(output(t, program, env, "config", "show", "--config", file, "--data", "/data"), dir+"/", "DIR/")
	if err := json.Unmarshal([]byte(text), &shown); err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(checked, file, "loquat.json"), shown
}

// The configurations of the pages of an older version, and one with every key, are accepted without
// a warning and have the same effect.
func TestConfigurationsOfOlderVersions(t *testing.T) {
	t.Parallel()
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		dir := folders(t, c)
		breaks := map[string]string{}
		for _, old := range c.Configs {
			checked, shown := old.shown(t, current(t), dir)
			for line := range strings.Lines(checked) {
				place, _, _ := strings.Cut(line, " is not checked")
				if line != "loquat.json: ok\n" && !strings.Contains(old.Checked, place) {
					t.Errorf("%s: %s", old.Place, line)
				}
			}
			var was object
			if err := json.Unmarshal(old.Shown, &was); err != nil {
				t.Fatal(err)
			}
			lost(breaks, "", was, shown)
		}
		reportBreaks(t, "config", breaks)
	})
}

// lost adds to breaks what a value has lost, by its place. Lists keep their order and length.
func lost(breaks map[string]string, place string, older, newer any) {
	was, is := textOf(older), textOf(newer)
	switch old := older.(type) {
	case object:
		now, ok := newer.(object)
		if !ok {
			breaks[place] = "was " + was + " and is " + is
		}
		for key, value := range old {
			if _, ok := now[key]; !ok {
				breaks[place+"."+key] = "is gone"
				continue
			}
			lost(breaks, place+"."+key, value, now[key])
		}
	default:
		if was != is {
			breaks[place] = "was " + was + " and is " + is
		}
	}
}

func textOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// The metrics of an older version are there, with their labels.
func TestMetricsOfOlderVersions(t *testing.T) {
	t.Parallel()
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		now := metricsOf(scrape(t, current(t)))
		breaks := map[string]string{}
		for name, labels := range c.Metrics {
			for _, label := range append(labels, "") {
				if _, ok := now[name]; !ok || label != "" && !slices.Contains(now[name], label) {
					breaks[strings.TrimSpace(name+" "+label)] = "is gone"
				}
			}
		}
		reportBreaks(t, "metric", breaks)
	})
}

// A server of this version starts on a backup of an older one: it has the sessions, clients continue at the events of
// the backup, and those that have seen later events load their sessions again.
func TestBackupsOfOlderVersions(t *testing.T) {
	t.Parallel()
	eachVersion(t, contractOf, func(t *testing.T, c contract) {
		data := t.TempDir()
		if err := unpack(backupOf(c.Version), data); err != nil {
			t.Fatal(err)
		}
		p := binary.Start(t, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", data)
		list, err := load(t.Context(), p.URL, "", "/sessions?limit=200")
		if err != nil {
			t.Fatal(err)
		}
		var now object
		if err := json.Unmarshal(list.Body, &now); err != nil {
			t.Fatal(err)
		}
		breaks := map[string]string{}
		lost(breaks, "sessions", c.Backup.Sessions["sessions"], now["sessions"])
		for place, what := range breaks {
			t.Errorf("%s: %s", place, what)
		}
		for since, want := range map[loquat.EventID]int{c.Backup.Latest: http.StatusOK, c.Backup.Latest + 1: http.StatusGone} {
			if status, _ := binary.GetOnce(t, p.URL+"/events?since_id="+since.String()); status != want {
				t.Errorf("the events after %s: status %d, not %d", since, status, want)
			}
		}
	})
}

// scrape returns the metrics of a server of a program that has answered once and streams once.
func scrape(t *testing.T, program string) string {
	t.Helper()
	p, err := binary.Launch(program, nil, "serve", "--demo", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	if err == nil {
		t.Cleanup(func() { p.End(t) })
		err = p.Listening()
	}
	if err != nil {
		t.Fatal(err)
	}
	binary.GetOnce(t, p.URL+"/version")
	_, text := binary.GetOnce(t, p.URL+"/metrics")
	return text
}
