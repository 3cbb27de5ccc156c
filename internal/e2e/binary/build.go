// Package binary runs the real program for tests: it builds the program, starts it, finds
// its address, reads its log and stops it. It also holds the small helpers that the
// packages of tests share. Only tests use it.
//
// ServerAt and ServerWith run a program that is built with the race detector if the tests
// are. All others run it without, because they measure memory or kill it under load.
package binary

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/gofrs/flock"
)

// The exit codes of the program.
const (
	ExitOK      = 0
	ExitFailure = 1 // something failed while the program ran
	ExitUsage   = 2 // wrong usage or configuration
)

// Path returns the program. All packages of tests of one working copy share the file, so
// that it is linked once: go build leaves a file alone that is up to date.
var Path = sync.OnceValues(func() (string, error) { return shared(nil) })

// RaceFlags are the flags of go build for a program with the race detector. It leaves out SQLite, C that was
// translated to Go: it would be four times slower, and none of its memory is Go's.
var RaceFlags = []string{"-race", "-gcflags=modernc.org/sqlite/lib=-race=false"}

// racePath returns the program, built with the race detector if the tests are.
var racePath = sync.OnceValues(func() (string, error) { return shared(raceFlags) })

// shared builds the program at a path that depends on the working copy and the flags. A
// lock on a file keeps several test processes from building at the same time.
func shared(flags []string) (string, error) {
	root, err := root()
	if err != nil {
		return "", err
	}
	if err := watchSources(root); err != nil {
		return "", err
	}
	key := sha256.Sum256([]byte(strings.Join(append([]string{root}, flags...), "\x00")))
	dir := filepath.Join(os.TempDir(), fmt.Sprintf("loquat-e2e-%d-%x", os.Getuid(), key[:6]))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	if err := lock.Lock(); err != nil {
		return "", fmt.Errorf("lock %s, which only tests of this user may use: %w", lock.Path(), err)
	}
	defer lock.Close()
	return Build(filepath.Join(dir, "loquat"), flags...)
}

// Build builds the program at path with flags of go build: without C, as releases are, unless the
// flags ask for the race detector, which needs it.
func Build(path string, flags ...string) (string, error) {
	cmd := exec.Command("go", append(append([]string{"build", "-o", path}, flags...), "loquat/cmd/loquat")...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if slices.Contains(flags, "-race") {
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1")
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return path, nil
}

// root returns the folder of go.mod.
func root() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// watchSources reads the folders of the program's sources. go test records which folders
// a test reads and runs it again when a file there changes. Without this it would repeat
// the last result, because the tests do not import the program.
func watchSources(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != root {
			return fs.SkipDir
		}
		return err
	})
}
