//go:build unix

package mcphost

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat/internal/config"
)

// A plugin.json that is not a regular file, or is too large, is a fault that says so.
// Reading one never blocks.
func TestManifestThatIsNotARegularFile(t *testing.T) {
	fifo := func(t *testing.T, path string) {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { // release a reader that is blocked in open
			if w, err := os.OpenFile(path, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				w.Close()
			}
		})
	}
	link := func(t *testing.T, target, path string) {
		if err := os.Symlink(target, path); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		make func(t *testing.T, path string)
		want string
	}{
		{"FIFO", fifo, "is a named pipe; must be a regular file"},
		{"link to a FIFO", func(t *testing.T, path string) {
			fifo(t, path+".fifo")
			link(t, path+".fifo", path)
		}, "is a named pipe; must be a regular file"},
		{"directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "is a directory; must be a regular file"},
		{"device", func(t *testing.T, path string) { link(t, "/dev/zero", path) }, "is a device; must be a regular file"},
		{"socket", func(t *testing.T, path string) {
			t.Chdir(filepath.Dir(path)) // the address of a socket must be short
			l, err := net.Listen("unix", filepath.Base(path))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
		}, "is a socket; must be a regular file"},
		{"link to nothing", func(t *testing.T, path string) { link(t, path+".gone", path) }, "has no such file"},
		{"link to itself", func(t *testing.T, path string) { link(t, path, path) }, "cannot be read: "},
		{"1 TiB", func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 1<<40); err != nil {
				t.Skip(err)
			}
		}, "is larger than 65536 bytes"},
		{"link to a regular file", func(t *testing.T, path string) {
			if err := os.WriteFile(path+".real", []byte(`{"name": "x", "kind": "tool", "command": "y"}`), 0o600); err != nil {
				t.Fatal(err)
			}
			link(t, path+".real", path)
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.make(t, filepath.Join(dir, manifestName))
			read := make(chan []config.Problem, 1)
			go func() {
				_, faults := ReadManifest(dir)
				read <- faults
			}()
			select {
			case faults := <-read:
				if c.want == "" && len(faults) > 0 || c.want != "" && (len(faults) != 1 || !strings.Contains(faults[0].String(), c.want)) {
					t.Errorf("faults are %v, want one with %q", faults, c.want)
				}
			case <-time.After(20 * time.Second):
				t.Error("the manifest has not been read after 20 s")
			}
		})
	}
}
