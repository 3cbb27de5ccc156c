//go:build unix

package docs_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"loquat/internal/e2e/binary"
)

// The commands of docs/proxies.md make a certificate with which the server starts, and which clients accept as they say.
func TestOwnCertificate(t *testing.T) {
	for _, tool := range []string{"curl", "bash", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("CI") != "" {
				t.Fatalf("%s is not installed", tool)
			}
			t.Skipf("the commands of the page need %s", tool)
		}
	}
	page := read(t, "../../../docs/proxies.md")
	commands := shownCommands(page)
	if len(commands) != 6 {
		t.Fatalf("docs/proxies.md has %d commands", len(commands))
	}
	dir, address := t.TempDir(), strings.Replace(binary.FreeAddress(t), "127.0.0.1", "localhost", 1)
	program, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	token := ""
	run := func(command string) string {
		command = strings.NewReplacer("sudo ", "", "chown ", "true ", "/etc/loquat", dir, "chat.example.org:8443", address, "chat.example.org", "localhost", "THE-TOKEN", token).Replace(command)
		return runCommand(t, dir, append(binary.CleanEnv(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH")), command)
	}
	for _, command := range commands[:4] {
		run(command)
	}
	_, sample, _ := strings.Cut(page, "```json\n")
	sample, _, _ = strings.Cut(sample, "```")
	sample = strings.NewReplacer("/etc/loquat", dir, "0.0.0.0:8443", strings.Replace(address, "localhost", "127.0.0.1", 1), "chat.example.org:8443", address).Replace(sample)
	binary.WriteFiles(t, dir, map[string]string{"loquat.json": sample})
	config := []string{"--config", filepath.Join(dir, "loquat.json"), "--data", filepath.Join(dir, "data")}
	binary.Start(t, nil, append([]string{"serve", "--demo"}, config...)...)
	var out, stderr bytes.Buffer
	if err := binary.Run(t.Context(), append([]string{"token", "new", "own-certificate"}, config...), strings.NewReader(""), &out, &stderr); err != nil {
		t.Fatalf("%v: %s", err, &stderr)
	}
	token = strings.TrimSpace(out.String())
	if got := run(commands[4]); !strings.Contains(got, `"ready":true`) {
		t.Errorf("%s answers %s", commands[4], got)
	}
	if got := run(commands[5]); !strings.Contains(got, "own-certificate") {
		t.Errorf("%s answers %s", commands[5], got)
	}
}
