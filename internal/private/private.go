// Package private keeps files from the other users of the machine.
package private

import (
	"fmt"
	"os"
	"runtime"
)

// others are the permissions of everybody but the owner of a file.
const others = 0o077

// Restrict takes from everybody but its owner the right to read or change a file or a
// directory. A file that is missing is fs.ErrNotExist. On Windows, where folders pass on
// their access lists, it does nothing.
func Restrict(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if runtime.GOOS == "windows" || info.Mode()&others == 0 {
		return nil
	}
	if err := os.Chmod(path, info.Mode()&^others); err != nil {
		return fmt.Errorf("make %s unreadable for other users: %w", path, err)
	}
	return nil
}
