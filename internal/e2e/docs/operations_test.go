//go:build unix

package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"loquat/internal/backend"
	"loquat/internal/e2e/binary"
)

// The commands of docs/operations.md, and then those of docs/backup.md, are run in their order and answer
// what the pages show, with a stand-in for systemd, which runs what the units say.
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
		t.Errorf("the pages show %d commands", ran)
	}
}

// operator does what docs/operations.md and docs/backup.md say, in places of its own.
type operator struct {
	t        *testing.T
	page     string // both pages
	dir      string
	server   *binary.Process
	follower *binary.Process
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	o := &operator{t: t, dir: t.TempDir()}
	for _, name := range []string{"operations.md", "backup.md"} {
		page, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", name))
		if err != nil {
			t.Fatal(err)
		}
		o.page += string(page)
	}
	config := `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "demo", "base_url": "` + binary.ScriptedBackend(t, backend.Options{}) + `/v1"}}}`
	binary.WriteFiles(t, o.dir, map[string]string{"loquat.json": config, "environment": "OPENAI_API_KEY=sk-your-key\n"})
	program, err := binary.Path()
	if err == nil {
		err = os.Symlink(program, filepath.Join(o.dir, "loquat")) // the program of the next version
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// sample is the only block of the pages in a language.
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
		"/etc/loquat/", o.dir + "/", "-o loquat ", "",
	}
	if o.server != nil {
		places = append(places, "http://"+readmeAddress, o.server.URL)
	}
	return places
}

func (o *operator) run(command string) string {
	o.t.Helper()
	command = strings.TrimPrefix(strings.ReplaceAll(command, "sudo -u loquat ", ""), "sudo ")
	switch command {
	case "apt install ./loquat_VERSION_linux_amd64.deb": // release/packages_test.go installs it
		if o.server != nil {
			o.server.End(o.t)
		}
		o.start()
		return ""
	case "systemctl start loquat":
		o.start()
		return ""
	case "systemctl enable --now loquat-backup":
		o.startFollower()
		return ""
	case "systemctl stop loquat":
		o.server.End(o.t)
		return ""
	case "systemctl stop loquat-backup loquat":
		o.follower.End(o.t)
		o.server.End(o.t)
		return ""
	case "systemctl start loquat loquat-backup":
		o.start()
		o.startFollower()
		return ""
	}
	if strings.HasPrefix(command, "chown ") { // everything here belongs to the user who runs the test
		return ""
	}
	path, err := binary.Path()
	if err != nil {
		o.t.Fatal(err)
	}
	there := o.places()
	env := append(binary.CleanEnv(), "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	if o.server != nil {
		env = append(env, "LOQUAT_LISTEN="+strings.TrimPrefix(o.server.URL, "http://"))
	}
	out := runCommand(o.t, o.dir, env, strings.NewReplacer(there...).Replace(command))
	return strings.NewReplacer(there[3], there[2], there[5], there[4]).Replace(out)
}

// unit returns the unit that packages install, and that the page names.
func unit(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "deploy", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// setting returns the value of a line of a unit.
func (o *operator) setting(unit, name string) string {
	o.t.Helper()
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(line, name); ok {
			return strings.NewReplacer(o.places()...).Replace(strings.TrimSpace(value))
		}
	}
	o.t.Fatalf("the unit has no %s", name)
	return ""
}

// start starts what the unit does.
func (o *operator) start() {
	o.t.Helper()
	args := strings.Fields(o.setting(unit(o.t, "loquat.service"), "ExecStart=/usr/bin/loquat "))
	o.server = binary.Start(o.t, []string{"LOQUAT_LISTEN=127.0.0.1:0"}, args...)
}

// startFollower starts what the unit of continuous backups does, and waits for the first copy.
func (o *operator) startFollower() {
	o.t.Helper()
	text := unit(o.t, "loquat-backup.service")
	path, err := binary.Path()
	if err != nil {
		o.t.Fatal(err)
	}
	destination := o.setting(text, "Environment=LOQUAT_BACKUP=")
	p, err := binary.Launch(path, nil, strings.Fields(strings.ReplaceAll(o.setting(text, "ExecStart=/usr/bin/loquat "), "${LOQUAT_BACKUP}", destination))...)
	if err != nil {
		o.t.Fatal(err)
	}
	o.follower = p
	o.t.Cleanup(func() { p.End(o.t) })
	binary.Eventually(o.t, "a copy by this process", func() bool {
		code, _ := binary.Exit(o.t, "backup", "--list", destination)
		return code == binary.ExitOK && strings.Contains(p.Log.String(), "msg=copying")
	})
}

// systemd takes the units, and the page names them and what they use.
func TestUnits(t *testing.T) {
	o := newOperator(t)
	for name, places := range map[string][]string{
		"loquat.service":        {"/etc/loquat/loquat.json", "/etc/loquat/environment", "/var/lib/loquat"},
		"loquat-backup.service": {"LOQUAT_BACKUP", "/var/backups/loquat/live", "/etc/loquat/backup-environment", "/var/lib/loquat"},
	} {
		text := unit(t, name)
		for _, place := range places {
			if !strings.Contains(o.page, place) || !strings.Contains(text, place) {
				t.Errorf("the page or %s lacks %s", name, place)
			}
		}
		if !strings.Contains(o.page, "](../deploy/"+name+")") {
			t.Errorf("the page does not name %s", name)
		}
		binary.WriteFiles(t, o.dir, map[string]string{name: strings.Replace(text, "/usr/bin/loquat ", "/bin/true ", 1)})
	}
	if !strings.Contains(unit(t, "loquat.service"), "\nExecReload=/bin/sh -c 'kill -HUP $MAINPID'\n") {
		t.Error("the unit cannot reload the configuration")
	}
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("systemd-analyze is not installed")
		}
		t.Skip("systemd-analyze is not there: nothing is held against systemd")
	}
	out, err := exec.Command(analyze, "verify", "--man=no", filepath.Join(o.dir, "loquat.service"), filepath.Join(o.dir, "loquat-backup.service")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "loquat") {
		t.Errorf("%v\n%s", err, out)
	}
}
