//go:build unix

package headroom

import "golang.org/x/sys/unix"

// FreeDisk returns how many bytes this process may still write in a directory, and the size of its disk.
func FreeDisk(dir string) (free, size int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, err
	}
	return int64(s.Bavail) * int64(s.Bsize), int64(s.Blocks) * int64(s.Bsize), nil
}
