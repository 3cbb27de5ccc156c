//go:build unix

package docs_test

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// elsewhere are the pages whose commands other tests run.
var elsewhere = map[string][]string{
	"README.md":     {"TestReadme"},
	"access.md":     {"TestGuideAccess", "TestRecipeFamily", "TestRecipeBackend", "TestRecipeDirect"},
	"backup.md":     {"TestOperations"},
	"cli.md":        {"TestReferenceOfCommands"}, // in cmd/loquat
	"operations.md": {"TestOperations", "TestContainer"},
	"plugins.md":    {"TestGuidePython"},
	"postgresql.md": {"TestFromOneNodeToThree", "TestPointInTimeRecovery", "TestRestoredDump"},
	"proxies.md":    {"TestOwnCertificate"},
	"scale.md":      {"TestFromOneNodeToThree"},
}

// here are the pages whose commands TestCommands runs, in its order, and what their outputs contain.
var here = []commandsOf{
	{"backend.md", []string{"", "data: [DONE]"}},
	{"openai.md", []string{"", `"object":"chat.completion"`}},
	{"moving-in.md", []string{"1 imported", `"skipped":1`}},
	{"config.md", []string{"providers.main.model\nserver.listen: needs a restart\n"}},
	{"users.md", []string{"loq_", "day,", `"action":"token_made"`}},
	{"webhooks.md", []string{`"secret":"whsec_`}},
	{"terminal.md", []string{"A plum?"}},
}

// commandsOf are a page and a part of the output of each of its commands.
type commandsOf struct {
	page string
	want []string
}

// Every command that a page shows is run by a test: by this one, on one server, or by another one.
func TestCommands(t *testing.T) {
	for _, tool := range []string{"curl", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the commands of the pages need %s", tool)
		}
	}
	tested := goTests(t)
	for _, path := range pages(t) {
		name := filepath.Base(path)
		if len(shownCommands(read(t, path))) == 0 || slices.ContainsFunc(here, func(h commandsOf) bool { return h.page == name }) {
			continue
		}
		if len(elsewhere[name]) == 0 {
			t.Errorf("no test runs the commands of %s", name)
		}
		for _, test := range elsewhere[name] {
			if !strings.Contains(tested, "func "+test+"(") {
				t.Errorf("there is no %s, which runs the commands of %s", test, name)
			}
		}
	}
	v := newVisitor(t)
	for _, p := range here {
		commands := shownCommands(read(t, "../../../docs/"+p.page))
		if len(commands) != len(p.want) {
			t.Fatalf("docs/%s has %d commands, expected are %d", p.page, len(commands), len(p.want))
		}
		for i, command := range commands {
			if got := v.run(command); !strings.Contains(got, p.want[i]) {
				t.Errorf("docs/%s: %s\nanswers %.500q\nwithout %q", p.page, command, got, p.want[i])
			}
		}
	}
}

// shownCommands are the commands in the blocks of a page.
func shownCommands(text string) (commands []string) {
	for _, block := range regexp.MustCompile("(?ms)^ *```(?:console|sh|bash)\n(.*?)^ *```").FindAllStringSubmatch(text, -1) {
		for _, line := range regexp.MustCompile(`(?m)^ *\$ (.*)$`).FindAllStringSubmatch(block[1], -1) {
			commands = append(commands, line[1])
		}
		if !strings.Contains(block[1], "$ ") {
			commands = append(commands, block[1])
		}
	}
	return commands
}

// visitor runs the commands of pages on one server, in one directory.
type visitor struct {
	t        *testing.T
	dir      string
	env      []string
	server   *binary.Process
	scripted string // the backend that the pages have at 127.0.0.1:8788
	config   string
}

func newVisitor(t *testing.T) *visitor {
	t.Helper()
	v := &visitor{t: t, dir: t.TempDir()}
	v.config = fmt.Sprintf(`{"server": {"listen": %q}, "webhooks": {"allow_private_addresses": true}, "providers": {"main": {
		"provider": "reference_generic_compatible", "model": "demo", "base_url": "%s/v1"}}}`, binary.FreeAddress(t), binary.ScriptedBackend(t, backend.Options{}))
	var export bytes.Buffer
	archive := zip.NewWriter(&export)
	file, err := archive.Create("conversations.json")
	if err == nil {
		_, err = file.Write([]byte(`[{"uuid": "5f1c3a52-8a53-4a64-9f3c-0d5a3c9f2b11", "name": "Plums", "created_at": "2026-01-02T03:04:05Z",
			"chat_messages": [{"uuid": "5f1c3a52-8a53-4a64-9f3c-0d5a3c9f2b12", "sender": "human", "text": "A plum?", "created_at": "2026-01-02T03:04:05Z"}]}]`))
	}
	if err = errors.Join(err, archive.Close()); err != nil {
		t.Fatal(err)
	}
	binary.WriteFiles(t, v.dir, map[string]string{"loquat.json": v.config, "export.zip": export.String()})
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	v.env = append(binary.CleanEnv(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"), "LOQUAT_CONFIG="+filepath.Join(v.dir, "loquat.json"),
		"LOQUAT_DATA="+filepath.Join(v.dir, "data"), "XDG_CONFIG_HOME="+v.dir, "XDG_DATA_HOME="+v.dir)
	v.server = binary.Start(t, v.env, "serve")
	return v
}

// run runs a command of a page and returns what it prints. What a command sets or makes is there for the next ones.
func (v *visitor) run(command string) string {
	v.t.Helper()
	switch {
	case strings.HasPrefix(command, "loquat backend "):
		v.scripted = binary.Start(v.t, v.env, "backend", "--listen", "127.0.0.1:0").URL
		return ""
	case strings.HasPrefix(command, "export "):
		for _, variable := range strings.Fields(command)[1:] {
			v.env = append(v.env, strings.ReplaceAll(variable, "http://"+readmeAddress, v.server.URL))
		}
		return ""
	case command == "loquat config reload":
		changed := strings.NewReplacer(`"demo"`, `"echo"`, `"listen": "127.0.0.1`, `"listen": "127.0.0.2`).Replace(v.config)
		binary.WriteFiles(v.t, v.dir, map[string]string{"loquat.json": changed})
		command += " --server " + v.server.URL + "; echo '" + v.config + "' > loquat.json"
	case strings.HasPrefix(command, "loquat token new"): // the first token closes the server, so the reader makes one of scope full
		command = "export LOQUAT_TOKEN=$(loquat token new admin); echo $LOQUAT_TOKEN > token; " + command
	case strings.HasPrefix(command, "loquat chat --server"): // a terminal would get the whole screen
		command += " --token $TOKEN 'A plum?'"
	}
	command = strings.NewReplacer("http://"+readmeAddress, v.server.URL, "http://127.0.0.1:8788", v.scripted).Replace(command)
	return runCommand(v.t, v.dir, v.env, "TOKEN=$(cat token 2>&1); "+command)
}

// runCommand runs a command of a page, which must succeed, and returns what it prints.
func runCommand(t *testing.T, dir string, env []string, command string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", "-c", command)
	cmd.Dir, cmd.Env = dir, env
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("$ %s\n%v\n%s%s", command, err, out, &stderr)
	}
	return string(out)
}
