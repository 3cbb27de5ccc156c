package headroom

import "golang.org/x/sys/windows"

// freeDisk returns how many bytes this process may still write in a directory.
func freeDisk(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, err
	}
	var free uint64
	err = windows.GetDiskFreeSpaceEx(path, &free, nil, nil)
	return int64(free), err
}
