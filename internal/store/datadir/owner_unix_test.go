//go:build unix

package datadir_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"loquat/internal/store/datadir"
)

// The lock file that a command of root makes belongs to the owner of the directory, who would
// otherwise be locked out.
func TestLockBelongsToOwnerOfDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root makes files for others")
	}
	const server = 12345
	dir := t.TempDir()
	if err := os.Chown(dir, server, server); err != nil {
		t.Fatal(err)
	}
	lock, err := datadir.Take(t.Context(), dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, datadir.LockName))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid != server {
		t.Errorf("%s belongs to %d, the directory to %d", datadir.LockName, uid, server)
	}
}
