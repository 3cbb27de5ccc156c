//go:build unix

package web

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeNode writes the page, counts the builds, and fails as long as there is a file named fail.
const fakeNode = `#!/bin/sh
[ "$1" = web/build.mjs ] || exit 0
mkdir -p internal/web/dist
touch internal/web/dist/index.html node_modules/.loquat-packages.json
echo built >> builds
! test -e fail
`

// A build that fails after it has written the page is made again. One that succeeds is made again only after a change.
func TestFailedBuildIsRepeated(t *testing.T) {
	dir := t.TempDir()
	script, err := os.ReadFile("../../web/make.sh")
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"web/make.sh": string(script), "bin/node": fakeNode, "bin/npm": "#!/bin/sh\nmkdir -p node_modules\n",
		"web/src/main.ts": "", "clients/typescript/src/index.ts": "", "package-lock.json": "", "tsconfig.base.json": "", "fail": "",
	} {
		write(name, text)
	}
	build := func(builds int, ok bool) {
		t.Helper()
		cmd := exec.Command("bash", filepath.Join(dir, "web", "make.sh"))
		cmd.Env = append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		text, _ := os.ReadFile(filepath.Join(dir, "builds"))
		if n := strings.Count(string(text), "built"); n != builds || (err == nil) != ok {
			t.Fatalf("after %d builds, not %d: %v\n%s", n, builds, err, out)
		}
	}
	build(1, false)
	build(2, false)
	if err := os.Remove(filepath.Join(dir, "fail")); err != nil {
		t.Fatal(err)
	}
	build(3, true)
	build(3, true)
	write("web/src/main.ts", "// changed")
	build(4, true)
	build(4, true)
}
