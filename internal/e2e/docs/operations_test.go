package docs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// The commands of docs/operations.md are run in their order and answer what the page
// shows, with a stand-in for systemd, which runs what the page's unit says.
func TestOperations(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the program four times")
	}
	for _, tool := range []string{"curl", "bash", "install"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("the commands of the page need %s", tool)
		}
	}
	o := newOperator(t)
	ran := 0
	for _, c := range o.commands() {
		got := o.run(c.command)
		if c.output != "" && canonical([]string{got}) != canonical([]string{c.output}) {
			t.Fatalf("$ %s\ngot\n%s\nthe page shows\n%s", c.command, got, c.output)
		}
		ran++
	}
	if ran < 12 {
		t.Errorf("the page shows %d commands", ran)
	}
}

// operator does what docs/operations.md says, in places of its own.
type operator struct {
	t      *testing.T
	page   string
	dir    string
	server *binary.Process
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	o := &operator{t: t, page: string(page), dir: t.TempDir()}
	config := `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "` + binary.ScriptedBackend(t, backend.Options{}) + `/v1"}}}`
	binary.WriteFiles(t, o.dir, map[string]string{"loquat.json": config})
	return o
}

// sample is the only block of the page in a language.
func (o *operator) sample(language string) string {
	o.t.Helper()
	m := regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```").FindAllStringSubmatch(o.page, -1)
	if len(m) != 1 {
		o.t.Fatalf("the page has %d samples in %s", len(m), language)
	}
	return m[0][1]
}

func (o *operator) commands() (out []shown) {
	for _, block := range regexp.MustCompile("(?ms)^```console\n(.*?)^```").FindAllStringSubmatch(o.page, -1) {
		for line := range strings.Lines(block[1]) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				out = append(out, shown{command: strings.TrimSpace(command)})
			} else {
				out[len(out)-1].output += line
			}
		}
	}
	return out
}

// places puts those of this run in the place of the page's, and back.
func (o *operator) places() []string {
	places := []string{
		"/var/lib/loquat", filepath.Join(o.dir, "lib"), "/var/backups/loquat", filepath.Join(o.dir, "backups"),
		"/etc/loquat/loquat.json", filepath.Join(o.dir, "loquat.json"), "-o loquat ", "",
	}
	if o.server != nil {
		places = append(places, "http://"+readmeAddress, o.server.URL)
	}
	return places
}

func (o *operator) run(command string) string {
	o.t.Helper()
	command = strings.TrimPrefix(strings.TrimPrefix(command, "sudo "), "-u loquat ")
	switch command {
	case "systemctl daemon-reload":
		return ""
	case "systemctl enable --now loquat", "systemctl start loquat":
		o.start()
		return ""
	case "systemctl stop loquat":
		o.server.End(o.t)
		return ""
	case "systemctl restart loquat":
		o.server.End(o.t)
		o.start()
		return ""
	}
	if strings.HasPrefix(command, "useradd ") {
		return ""
	}
	path, err := binary.Path()
	if err != nil {
		o.t.Fatal(err)
	}
	there := o.places()
	cmd := exec.Command("bash", "-c", strings.NewReplacer(there...).Replace(command))
	cmd.Dir, cmd.Env = o.dir, append(binary.CleanEnv(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		o.t.Fatalf("$ %s\n%v\n%s%s", command, err, out, &stderr)
	}
	return strings.ReplaceAll(string(out), there[3], there[2])
}

// start starts what the unit of the page does.
func (o *operator) start() {
	o.t.Helper()
	m := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/loquat (.*)$`).FindStringSubmatch(o.sample("ini"))
	if m == nil {
		o.t.Fatal("the unit starts nothing")
	}
	o.server = nil
	args := strings.Fields(strings.NewReplacer(o.places()...).Replace(m[1]))
	o.server = binary.Start(o.t, []string{"LOQUAT_LISTEN=127.0.0.1:0"}, args...)
}

// systemd takes the unit as the page shows it.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not there: nothing is held against systemd")
	}
	o := newOperator(t)
	unit := strings.Replace(o.sample("ini"), "/usr/local/bin/loquat ", "/bin/true ", 1)
	binary.WriteFiles(t, o.dir, map[string]string{"loquat.service": unit})
	out, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(o.dir, "loquat.service")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "loquat.service") {
		t.Errorf("%v\n%s", err, out)
	}
}
