package docs_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"loquat"

	"loquat/internal/client"
	"loquat/internal/e2e/binary"
)

// What Containerfile makes an image of is run as the image would: in a file system that
// has nothing else, as a user without rights, with the page's configuration.
func TestContainer(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can run something in a file system of its own")
	}
	c := newContainer(t)
	if !strings.Contains(c.file, "CGO_ENABLED=0 go build ") {
		t.Error("the image has no libraries, and the binary is not built without C")
	}
	if page := newOperator(t).page; strings.Count(page, "--read-only") != strings.Count(page, "--read-only --tmpfs /tmp ") {
		t.Error("the root of the container is read-only, and the container has no /tmp")
	}
	if c.env["LOQUAT_LISTEN"] != "0.0.0.0:8787" {
		t.Errorf("it listens on %q", c.env["LOQUAT_LISTEN"])
	}
	c.env["LOQUAT_LISTEN"] = "0.0.0.0:0"
	var refusal *exec.ExitError
	if out, err := c.command("serve").CombinedOutput(); !errors.As(err, &refusal) || refusal.ExitCode() != binary.ExitUsage || !strings.Contains(string(out), "loquat token new") {
		t.Fatalf("without a token: %v\n%s", err, out)
	}
	token, err := c.command("token", "new", "admin").Output()
	if err != nil {
		t.Fatal(err)
	}
	c.env["LOQUAT_LISTEN"] = "127.0.0.1:0" // nobody else is to reach it
	api := c.serve(strings.TrimSpace(string(token)))
	s := c.editLongChat(api)
	if out, err := c.command("backup", "/data/copy").CombinedOutput(); err != nil {
		t.Errorf("backup: %v\n%s", err, out)
	}
	if _, err := api.Session(t.Context(), s.SessionID); err != nil {
		t.Error(err)
	}
}

// editLongChat makes a chat of 100 messages and sends another in place of most of them. SQLite then needs a
// temporary file, and the data directory is the only one that the container can write to.
func (c *container) editLongChat(api *client.Client) loquat.Snapshot {
	c.t.Helper()
	message := loquat.NewMessage{Role: "user", Content: strings.Repeat("x", 2000)}
	s, err := api.CreateSession(c.t.Context(), loquat.NewSession{Messages: slices.Repeat([]loquat.NewMessage{message}, 100)})
	if err != nil {
		c.t.Fatal(err)
	}
	from := 1
	if _, err := api.Send(c.t.Context(), s.SessionID, loquat.Send{Content: &message.Content, DeleteFrom: &from}); err != nil {
		c.t.Errorf("a message is edited: %v", err)
	}
	return s
}

// container is the last stage of Containerfile.
type container struct {
	t       *testing.T
	file    string
	root    string
	env     map[string]string
	user    uint32
	started []string // ENTRYPOINT
}

func newContainer(t *testing.T) *container {
	t.Helper()
	file, err := os.ReadFile(filepath.Join("..", "..", "..", "Containerfile"))
	if err != nil {
		t.Fatal(err)
	}
	c := &container{t: t, file: string(file), root: t.TempDir(), env: map[string]string{"PATH": "/usr/local/bin", "OPENAI_API_KEY": "sk-your-key"}}
	_, last, _ := strings.Cut(c.file, "\nFROM gcr.io/distroless/static")
	for line := range strings.Lines(last) {
		what, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch what {
		case "ENV":
			for _, pair := range strings.Fields(rest) {
				name, value, _ := strings.Cut(pair, "=")
				c.env[name] = value
			}
		case "USER":
			user, _, _ := strings.Cut(rest, ":")
			n, err := strconv.ParseUint(user, 10, 32)
			if err != nil || n == 0 {
				t.Fatalf("USER %s", rest)
			}
			c.user = uint32(n)
		case "COPY":
			c.copy(strings.Fields(rest))
		case "ENTRYPOINT", "CMD":
			c.started = append(c.started, regexp.MustCompile(`\w+`).FindAllString(rest, -1)...)
		}
	}
	if !slices.Equal(c.started, []string{"loquat", "serve"}) || c.user == 0 {
		t.Fatalf("it starts %v as %d", c.started, c.user)
	}
	binary.WriteFiles(t, c.root, map[string]string{"loquat.json": newOperator(t).sample("json")})
	if err := errors.Join(os.Chmod(filepath.Join(c.root, "loquat.json"), 0o644), os.Chmod(c.root, 0o755)); err != nil {
		t.Fatal(err)
	}
	return c
}

// copy does a COPY of what the stage before has built: the binary and an empty folder.
func (c *container) copy(args []string) {
	c.t.Helper()
	to := filepath.Join(c.root, args[len(args)-1])
	switch args[len(args)-2] {
	case "/out/loquat":
		path, err := binary.Path()
		if err != nil {
			c.t.Fatal(err)
		}
		c.place(path, to)
		c.libraries(path)
	case "/out/data":
		if !slices.Contains(args, "--chown=65532:65532") {
			c.t.Errorf("COPY %v leaves the data to root", args)
		}
		if err := errors.Join(os.MkdirAll(to, 0o755), os.Chown(to, 65532, 65532)); err != nil {
			c.t.Fatal(err)
		}
	case "LICENSE":
		c.place(filepath.Join("..", "..", "..", "LICENSE"), to)
	default:
		c.t.Errorf("COPY %v", args)
	}
}

// libraries are those of the test's own binary, which may be built with C.
func (c *container) libraries(path string) {
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		return // it has none
	}
	for _, library := range regexp.MustCompile(`(/\S+) \(0x`).FindAllStringSubmatch(string(out), -1) {
		c.place(library[1], filepath.Join(c.root, library[1]))
	}
}

func (c *container) place(from, to string) {
	c.t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, b, 0o755))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *container) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.env["PATH"], c.started[0]), args...)
	cmd.Dir, cmd.Env = "/", []string{}
	for name, value := range c.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: c.root, Credential: &syscall.Credential{Uid: c.user, Gid: c.user}}
	return cmd
}

// serve runs the server until the end of the test.
func (c *container) serve(token string) *client.Client {
	c.t.Helper()
	p, err := binary.LaunchCommand(c.command(c.started[1:]...))
	if p != nil {
		c.t.Cleanup(func() { p.End(c.t) })
	}
	if err == nil {
		err = p.Listening()
	}
	if err != nil {
		c.t.Fatal(err)
	}
	if resp, err := http.Get(p.URL + "/readyz"); err != nil {
		c.t.Fatal(err)
	} else if resp.Body.Close(); resp.StatusCode != http.StatusOK {
		c.t.Fatalf("it is %s:\n%s", resp.Status, p.Log)
	}
	api, err := client.New(p.URL, client.Options{Token: token})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(api.CloseIdleConnections)
	return api
}
