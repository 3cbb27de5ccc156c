//go:build unix

package headroom

import "golang.org/x/sys/unix"

// freeDisk returns how many bytes this process may still write in a directory.
func freeDisk(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
