//go:build unix

package datadir

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// giveToOwner gives a file that root has made to the owner of its directory. Otherwise a command of
// root would keep the server's user out of its own data directory. SQLite does the same.
func giveToOwner(path, dir string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	file, err := os.Lstat(path)
	if err != nil {
		return err
	}
	owner, err := os.Stat(dir)
	if err != nil {
		return err
	}
	made, ok := file.Sys().(*syscall.Stat_t)
	wanted, known := owner.Sys().(*syscall.Stat_t)
	if !ok || !known || made.Uid != 0 || wanted.Uid == 0 {
		return nil
	}
	err = os.Lchown(path, int(wanted.Uid), int(wanted.Gid))
	if errors.Is(err, syscall.EPERM) { // a container may take this right from root
		return nil
	}
	return err
}

// Denied returns an error if the user of this process may not read and write a file. It does not open the file:
// closing it would end the locks that SQLite holds on it in this process.
func Denied(path string) error {
	const readAndWrite = 6
	if err := syscall.Access(path, readAndWrite); errors.Is(err, fs.ErrPermission) {
		return &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return nil
}
