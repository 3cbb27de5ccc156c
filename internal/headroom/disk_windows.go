package headroom

import "golang.org/x/sys/windows"

// FreeDisk returns how many bytes this process may still write in a directory, and the size of its disk.
func FreeDisk(dir string) (free, size int64, err error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var left, all uint64
	err = windows.GetDiskFreeSpaceEx(path, &left, &all, nil)
	return int64(left), int64(all), err
}
