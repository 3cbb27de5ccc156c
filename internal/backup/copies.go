package backup

import (
	"cmp"
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/superfly/ltx"
)

// A place has files in the format LTX, under the names that Litestream gives them:
//
//	ltx/LEVEL/FIRST-LAST.ltx  pages of the database
//	assets/HH/HASH            an image
//	unused/TIME-HASH          notes that no state from TIME on names an image
//	loquat.json               the status of the command that writes here
//
// Litestream numbers transactions. Here the number is the time of a state in milliseconds since 1970,
// so the file FIRST-LAST has all pages that changed from the state at FIRST-1 to the state at LAST. A
// state of a time has all that was committed before this time. Applied to the state at FIRST-1, the
// file makes the state at LAST, whatever other files there are. A file whose first number is 1 has all
// pages.

// The levels of files.
const (
	levelCopies    = 0
	levelMinutes   = 1
	levelHours     = 2
	levelSnapshots = 9 // the files that have all pages, as in Litestream
)

// levels are all levels that are written.
var levels = []int{levelCopies, levelMinutes, levelHours, levelSnapshots}

// file is a file of pages.
type file struct {
	level    int
	min, max int64
	size     int64
}

func (f file) name() string {
	return fmt.Sprintf("ltx/%d/%s", f.level, ltx.FormatFilename(ltx.TXID(f.min), ltx.TXID(f.max)))
}

func (f file) snapshot() bool { return f.min == 1 }

func (f file) time() time.Time { return time.UnixMilli(f.max) }

// parseFile returns the file that a name describes. Other files count as nothing.
func parseFile(name string, size int64) (f file, ok bool) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 || parts[0] != "ltx" {
		return file{}, false
	}
	level, err := strconv.Atoi(parts[1])
	if err != nil || !slices.Contains(levels, level) {
		return file{}, false
	}
	first, last, err := ltx.ParseFilename(path.Base(name))
	const most = 1 << 60
	if err != nil || first < 1 || first > last || last > most {
		return file{}, false
	}
	return file{level, int64(first), int64(last), size}, true
}

// listFiles returns the files of pages in a place.
func listFiles(ctx context.Context, place Place) (out []file, err error) {
	err = place.List(ctx, "ltx/", func(name string, size int64) error {
		if f, ok := parseFile(name, size); ok {
			out = append(out, f)
		}
		return nil
	})
	return out, err
}

// states are the states that files lead to.
type states struct {
	last  map[int64]file // by time: the file that leads there, over the fewest files
	times []int64        // in order
}

// reach returns the states up to a time. A chain of files begins with a snapshot, and each further file
// begins where the one before ends.
func reach(all []file, upTo int64) states {
	s := states{last: map[int64]file{}}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b file) int { return cmp.Or(cmp.Compare(a.min, b.min), cmp.Compare(b.level, a.level)) })
	for _, f := range sorted {
		_, begun := s.last[f.min-1]
		_, known := s.last[f.max]
		if f.max <= upTo && !known && (f.snapshot() || begun) {
			s.last[f.max] = f
			s.times = append(s.times, f.max)
		}
	}
	slices.Sort(s.times)
	return s
}

// newest returns the time of the newest state, or 0 if there is none.
func (s states) newest() int64 {
	if len(s.times) == 0 {
		return 0
	}
	return s.times[len(s.times)-1]
}

// chain returns the files that lead to a state, the snapshot first.
func (s states) chain(to int64) (out []file) {
	for {
		f, ok := s.last[to]
		if !ok {
			return nil
		}
		out = append(out, f)
		if f.snapshot() {
			slices.Reverse(out)
			return out
		}
		to = f.min - 1
	}
}
