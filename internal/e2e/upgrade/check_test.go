package upgrade_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"loquat/internal/e2e/binary"
	"loquat/internal/store/datadir"
)

// upgradeCheck runs `loquat upgrade --check` of a program, and returns its exit code and output.
func upgradeCheck(t *testing.T, program string, args ...string) (code int, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{"upgrade", "--check"}, args...)...)
	cmd.Env = binary.CleanEnv()
	out, err := cmd.CombinedOutput()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// expectCheck checks what `loquat upgrade --check` says.
func expectCheck(t *testing.T, code int, said string, wantCode int, want ...string) {
	t.Helper()
	if code != wantCode {
		t.Errorf("exit code %d, want %d:\n%s", code, wantCode, said)
	}
	for _, text := range want {
		if !strings.Contains(said, text) {
			t.Errorf("it does not say %q:\n%s", text, said)
		}
	}
}

// What a check says of an older directory comes true, and the check itself changes no data.
func TestUpgradeCheckOfOlderVersion(t *testing.T) {
	program, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	var r recording
	if err := readJSON(servedBy("3f0b70a"), &r); err != nil {
		t.Fatal(err)
	}
	o := openOlder(t, r)
	before := filesOf(t, o.data)
	code, said := upgradeCheck(t, program, "--data", o.data, o.config)
	expectCheck(t, code, said, binary.ExitOK, "loquat.json is accepted", "has schema 7; the next start changes it to ",
		"time: the change goes through the whole tables messages, requests, sessions, in a database of 1.3 MiB",
		"way back: closed: ", "server: no server uses the data now", "disk: the upgrade needs up to 1.3 MiB")
	for name, text := range filesOf(t, o.data) {
		if before[name] != text && name != datadir.LockName && name != "loquat.db-shm" {
			t.Errorf("the check changes %s", name)
		}
	}
	o.serve()
	code, said = upgradeCheck(t, program, o.data)
	expectCheck(t, code, said, binary.ExitOK, "the next start changes nothing in it", "way back: open", "server: a server uses the data now\n")
	o.stop()
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		found[strings.TrimPrefix(path, dir+string(filepath.Separator))] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// What keeps this program from taking over is a problem, with its remedy.
func TestUpgradeCheckFindsProblems(t *testing.T) {
	program, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const provider = `"providers": {"main": {"provider": "reference_generic_compatible", "model": "m"}}`
	binary.WriteFiles(t, dir, map[string]string{
		"unknown.json":     `{` + provider + `, "servre": {}}`,
		"unusable.json":    `{"providers": {"main": {"provider": "reference_generic_compatible"}}}`,
		"unreachable.json": `{` + provider + `, "store": {"url": "postgres://127.0.0.1:1/loquat?user=a&password=hidden"}}`,
	})
	damaged := filepath.Join(dir, "damaged")
	if err := os.Mkdir(damaged, 0o700); err != nil {
		t.Fatal(err)
	}
	binary.WriteFiles(t, damaged, map[string]string{"loquat.db": strings.Repeat("no database", 100)})
	for _, tc := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{filepath.Join(dir, "unknown.json"), "--data", filepath.Join(dir, "none")}, binary.ExitOK, []string{"warning: servre: ", "did you mean server", "has no data yet"}},
		{[]string{filepath.Join(dir, "unusable.json")}, binary.ExitUsage, []string{"configuration: problem: providers.main.model: is missing", "1 problem"}},
		{[]string{filepath.Join(dir, "unreachable.json"), "--data", dir}, binary.ExitFailure, []string{"data: problem: store.url: ", "start the database, or correct the host and the port"}},
		{[]string{damaged}, binary.ExitFailure, []string{"data: problem: ", "put a backup in its place"}},
		{[]string{filepath.Join(dir, "absent")}, binary.ExitUsage, []string{"no such file"}},
		{[]string{dir, "extra"}, binary.ExitUsage, []string{"2 arguments given"}},
	} {
		code, said := upgradeCheck(t, program, tc.args...)
		expectCheck(t, code, said, tc.code, tc.want...)
		if strings.Contains(said, "hidden") {
			t.Errorf("it shows a password:\n%s", said)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "none")); err == nil {
		t.Error("the check makes a data directory")
	}
}
