package access_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// recipe is a section of docs/access.md, run as it stands: its configuration with a provider, and its
// commands on a port of their own.
type recipe struct {
	t        *testing.T
	dir      string
	file     string // of the configuration
	commands []string
	env      []string
	url      string
}

func newRecipe(t *testing.T, title string) *recipe {
	t.Helper()
	for _, tool := range []string{"curl", "bash", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the commands of docs/access.md need %s", tool)
		}
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "access.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(page), "\n## "+title+"\n")
	if !ok {
		t.Fatalf("docs/access.md has no section %q", title)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	r := &recipe{t: t, dir: t.TempDir()}
	r.file = regexp.MustCompile("`(\\w+\\.json)`").FindStringSubmatch(section)[1]
	var cfg map[string]json.RawMessage
	if err := json.Unmarshal([]byte(regexp.MustCompile("(?s)```json\n(.*?)```").FindStringSubmatch(section)[1]), &cfg); err != nil {
		t.Fatal(err)
	}
	cfg["providers"] = json.RawMessage(`{"main": {"provider": "reference_generic_compatible", "model": "gpt-5-mini", "base_url": "` + binary.ScriptedBackend(t, backend.Options{}) + `/v1"}}`)
	cfg["webhooks"] = json.RawMessage(`{"allow_private_addresses": true}`) // app.example.org has no address
	text, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.dir, r.file), text, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range regexp.MustCompile(`(?m)^\$ (.*)$`).FindAllStringSubmatch(section, -1) {
		r.commands = append(r.commands, line[1])
	}
	return r
}

func (r *recipe) set(name, value string) { r.env = append(r.env, name+"="+value) }

// assignment sets a variable to what a command prints.
var assignment = regexp.MustCompile(`^(?:export )?(\w+)=\$\((.*)\)$`)

// next runs the next command of the recipe and returns what it prints. It starts a server for serve.
func (r *recipe) next(begins string) (printed string) {
	r.t.Helper()
	if len(r.commands) == 0 {
		r.t.Fatalf("the recipe has no further command; want one that begins with %q", begins)
	}
	command := r.commands[0]
	r.commands = r.commands[1:]
	if m := assignment.FindStringSubmatch(command); m != nil {
		command = m[2]
		defer func() { r.set(m[1], printed) }()
	}
	if !strings.HasPrefix(command, begins) {
		r.t.Fatalf("the next command is not %s…: %q", begins, command)
	}
	if strings.HasPrefix(command, "loquat serve") {
		args := append(strings.Fields(command)[1:], "--listen", "127.0.0.1:0", "--data", filepath.Join(r.dir, "data"))
		for i, a := range args {
			if a == r.file {
				args[i] = filepath.Join(r.dir, a)
			}
		}
		r.url = binary.Start(r.t, r.env, args...).URL
		return ""
	}
	path, err := binary.Path()
	if err != nil {
		r.t.Fatal(err)
	}
	if strings.HasPrefix(command, "loquat ") {
		command += " --data " + filepath.Join(r.dir, "data")
	}
	cmd := exec.CommandContext(r.t.Context(), "bash", "-c", strings.ReplaceAll(command, "http://127.0.0.1:8787", r.url))
	cmd.Dir, cmd.Env = r.dir, append(append(binary.CleanEnv(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH")), r.env...)
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("%s: %v\n%s", command, err, &log)
	}
	return strings.TrimSpace(out.String())
}

// call makes a call with a token and returns the answer.
func (r *recipe) call(token, method, path, body string) string {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "curl", "-s", "-X", method, "-H", "Authorization: Bearer "+token, r.url+path)
	if body != "" {
		cmd.Args = append(cmd.Args, "--json", body)
	}
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatal(err)
	}
	return string(out)
}

// has requires that an answer has all of some texts.
func (r *recipe) has(answer string, texts ...string) {
	r.t.Helper()
	for _, text := range texts {
		if !strings.Contains(answer, text) {
			r.t.Errorf("%q is not in %.500s", text, answer)
		}
	}
}

func TestRecipeFamily(t *testing.T) {
	r := newRecipe(t, "A family on one server")
	r.next("loquat token new admin")
	ann, ben := r.next("loquat token new ann"), r.next("loquat token new ben")
	r.next("loquat serve")
	r.has(r.call(ann, "POST", "/sessions", `{"session_id": "of-ann", "send": {"content": "a plum", "request_id": "q"}}`), `"user":"ann"`)
	r.has(r.call(ann, "GET", "/events?request_id=q&wait=10", ""), "request_started")
	r.has(r.call(ben, "GET", "/sessions/of-ann", ""), `"not_found"`)
	r.has(r.call(ben, "GET", "/sessions", ""), `"sessions":[]`)
	r.has(r.call(ben, "POST", "/sessions", `{"send": {"content": "hello"}}`), `"user":"ben"`)
	binary.Eventually(t, "the usage of both", func() bool {
		before := r.commands
		usage := r.next("curl")
		r.commands = before
		return strings.Contains(usage, `"user":"ann"`) && strings.Contains(usage, `"user":"ben"`)
	})
	r.has(r.next("curl"), `"cost":0.0`)
}

func TestRecipeBackend(t *testing.T) {
	r := newRecipe(t, "An app with a backend")
	r.next("openssl")
	r.next("loquat serve")
	r.has(r.next("curl"), `"secret":"whsec_`)
	r.has(r.next("curl"), `"user":"user-17"`)
	binary.Eventually(t, "the reply", func() bool {
		before := r.commands
		messages := r.next("curl")
		r.commands = before
		return strings.Contains(messages, `"role":"assistant"`)
	})
	r.has(r.next("curl"), `"role":"assistant"`)
}

func TestRecipeDirect(t *testing.T) {
	r := newRecipe(t, "An app whose browsers talk to Loquat directly")
	r.next("openssl")
	r.next("loquat serve")
	var token struct{ Token, Role string }
	if err := json.Unmarshal([]byte(r.next("curl")), &token); err != nil || token.Token == "" || token.Role != "plus" {
		t.Fatalf("%+v %v", token, err)
	}
	r.set("USER_TOKEN", token.Token)
	r.has(r.call(token.Token, "POST", "/sessions", `{"session_id": "mine"}`), `"user":"user-17"`)
	r.has(r.next("curl"), `"session_created"`, `"mine"`)
}
