//go:build unix

package docs_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// shown is a command of the README and what it shows of its output.
type shown struct{ command, output string }

// readme returns the commands of the README in their order, and its configuration.
func readme(t *testing.T) (commands []shown, config string) {
	t.Helper()
	b, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, block := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```").FindAllStringSubmatch(string(b), -1) {
		switch block[1] {
		case "json":
			config = block[2]
		case "console":
			for line := range strings.Lines(block[2]) {
				if command, ok := strings.CutPrefix(line, "$ "); ok {
					commands = append(commands, shown{command: strings.TrimSpace(command)})
				} else {
					commands[len(commands)-1].output += line
				}
			}
		}
	}
	if len(commands) < 8 || config == "" {
		t.Fatalf("the README shows %d commands and a configuration of %d bytes", len(commands), len(config))
	}
	return commands, config
}

// Everything that the README shows is run as it stands, and answers what it shows,
// byte for byte but for ids and times.
func TestReadme(t *testing.T) {
	for _, tool := range []string{"curl", "jq", "make", "bash"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the README's commands need %s", tool)
		}
	}
	commands, config := readme(t)
	r := newReader(t, config)
	var expected, got []string
	for _, c := range commands {
		out := r.run(c)
		if c.output == "" {
			continue
		}
		expected, got = append(expected, c.output), append(got, out)
		if a, b := canonical(expected), canonical(got); a != b {
			t.Fatalf("$ %s\ngot\n%s\nthe README shows\n%s", c.command, out, c.output)
		}
		here := eventID.FindAllString(out, -1)
		for i, id := range eventID.FindAllString(c.output, -1) {
			r.ids[id] = here[i]
		}
	}
}

// canonical replaces ids and times by their order of appearance, so that what is the
// same in one text has to be the same in the other.
func canonical(texts []string) string {
	seen := map[string]string{}
	pattern := regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b\d{16}\b`)
	return pattern.ReplaceAllStringFunc(strings.Join(texts, ""), func(s string) string {
		if s[4] == '-' {
			return "<time>"
		}
		if seen[s] == "" {
			seen[s] = fmt.Sprintf("<id %d>", len(seen)+1)
		}
		return seen[s]
	})
}

// reader does what the README says, on ports and in places of its own.
type reader struct {
	t        *testing.T
	home     string
	backend  string // replaces https://api.openai.com
	server   *exec.Cmd
	address  string
	ids      map[string]string // events of the README, and those of this run
	exported []string          // variables that the reader has set
}

var eventID = regexp.MustCompile(`\b\d{16}\b`)

const readmeAddress = "127.0.0.1:8787"

func newReader(t *testing.T, config string) *reader {
	t.Helper()
	b, err := backend.New(backend.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- b.Serve(ctx, ln) }()
	r := &reader{t: t, home: t.TempDir(), backend: "http://" + ln.Addr().String(), ids: map[string]string{}}
	t.Cleanup(func() {
		r.stop()
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	binary.WriteFile(t, filepath.Join(r.home, "loquat.json"), r.adapt(config))
	return r
}

// adapt puts this run's addresses and events in the place of the README's.
func (r *reader) adapt(text string) string {
	text = strings.ReplaceAll(text, "https://api.openai.com", r.backend)
	text = strings.ReplaceAll(text, "gpt-5-mini", "echo")
	text = eventID.ReplaceAllStringFunc(text, func(id string) string { return cmp.Or(r.ids[id], id) })
	if r.address != "" {
		text = strings.ReplaceAll(text, readmeAddress, r.address)
	}
	return text
}

func (r *reader) env() []string {
	env := append(binary.CleanEnv(), "XDG_DATA_HOME="+r.home, "XDG_CONFIG_HOME="+r.home)
	env = append(env, r.exported...)
	if path, err := binary.Path(); err == nil {
		env = append(env, "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	}
	return env
}

// run runs one command and returns what it prints.
func (r *reader) run(c shown) string {
	r.t.Helper()
	exported, isExport := strings.CutPrefix(c.command, "export ")
	switch {
	case isExport:
		r.exported = append(r.exported, exported)
		return ""
	case strings.HasSuffix(c.command, "make run"), strings.HasPrefix(c.command, "bin/loquat serve"):
		return r.start(c.command)
	case c.command == "make build":
		return r.shell("make -n build", "../../..")
	case strings.HasPrefix(c.command, "curl -N"):
		out := r.shell("timeout 2 "+c.command+" || [ $? = 124 ]", r.home)
		if !strings.HasPrefix(out, "id: ") {
			r.t.Fatalf("$ %s\ngot %q", c.command, out)
		}
		return ""
	}
	// What runs in the background may need a moment to be as it is shown.
	out := ""
	for range 50 {
		out = r.shell(strings.TrimPrefix(c.command, "bin/"), r.home)
		if c.output == "" || canonical([]string{out}) == canonical([]string{c.output}) || strings.Contains(c.command, "--json") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return out
}

func (r *reader) shell(command, dir string) string {
	r.t.Helper()
	text := runCommand(r.t, dir, r.env(), r.adapt(command))
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return strings.ReplaceAll(text, r.address, readmeAddress)
}

// start starts a server by make or as the built program, after it stopped the one before. The first starts
// without a configuration and on the scripted backend, as on a machine that has none.
func (r *reader) start(command string) string {
	r.t.Helper()
	extra := []string{"LOQUAT_LISTEN=127.0.0.1:0"}
	switch {
	case r.server == nil:
		extra = append(extra, "LOQUAT_DEMO=true")
	case command == "make run":
		extra = append(extra, "LOQUAT_CONFIG="+filepath.Join(r.home, "loquat.json"))
	}
	r.stop()
	cmd := exec.Command("bash", "-c", r.adapt(strings.TrimPrefix(command, "bin/")))
	cmd.Dir, cmd.Env = "../../..", append(r.env(), extra...)
	if !strings.Contains(command, "OPENAI_API_KEY") && len(extra) == 2 && extra[1] == "LOQUAT_DEMO=true" {
		cmd.Env = append(cmd.Env, "XDG_CONFIG_HOME="+r.t.TempDir())
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // make, go run and the server
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	log := &binary.LockedBuffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.server = cmd
	ready := make(chan string, 1)
	go func() {
		b := make([]byte, 0, 256)
		for !bytes.Contains(b, []byte("listening on")) || b[len(b)-1] != '\n' {
			n, err := stdout.Read(b[len(b):cap(b)])
			if b = b[:len(b)+n]; err != nil || len(b) == cap(b) {
				break
			}
		}
		ready <- string(b)
	}()
	select {
	case out := <-ready:
		_, address, ok := strings.Cut(strings.TrimSpace(out), "listening on http://")
		if !ok {
			r.t.Fatalf("$ %s\ngot %q\n%s", command, out, log)
		}
		r.address = address
		return "listening on http://" + readmeAddress + "\n"
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("$ %s\ndoes not listen:\n%s", command, log)
		return ""
	}
}

func (r *reader) stop() {
	if r.server == nil {
		return
	}
	_ = syscall.Kill(-r.server.Process.Pid, syscall.SIGTERM)
	_ = r.server.Wait()
}
