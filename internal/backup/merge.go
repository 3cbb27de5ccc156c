package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/superfly/ltx"
)

// How copies are merged and how long they are kept. States get rarer with age: so a page that changes
// every second is kept a few times, not 86,400 times a day.
const (
	// keepCopies is how long every state can be restored.
	keepCopies = 15 * time.Minute
	// keepMinutes is how long a state of each minute can be restored.
	keepMinutes = time.Hour
	// snapshotEvery is the least time between two files with all pages.
	snapshotEvery = 24 * time.Hour
	// maxInputs is how many files are merged into one.
	maxInputs = 128
)

// merge levels: the files of one are merged into those of the next.
var mergers = []struct {
	from, to int
	period   time.Duration
}{
	{levelCopies, levelMinutes, time.Minute},
	{levelMinutes, levelHours, time.Hour},
}

// maintain merges files and removes those that are not needed any more.
func (f *follower) maintain(ctx context.Context, now time.Time) error {
	for _, m := range mergers {
		for _, group := range groups(f.list(), m.from, m.to, m.period, now) {
			if err := f.merge(ctx, group, m.to); err != nil {
				return err
			}
		}
	}
	if group := snapshotDue(f.list(), now, f.keep); group != nil {
		if err := f.merge(ctx, group, levelSnapshots); err != nil {
			return err
		}
	}
	for _, old := range expired(f.list(), now, f.keep) {
		if err := f.place.Remove(ctx, old.name()); err != nil {
			return err
		}
		f.forget(old)
	}
	return nil
}

// groups returns the files of a level that are to be merged: those of each period that is over.
func groups(all []file, from, to int, period time.Duration, now time.Time) (out [][]file) {
	var sources []file
	merged := covered(all, to, now)
	for _, f := range all {
		if f.level == from && !merged(f) && f.max < now.Truncate(period).UnixMilli() {
			sources = append(sources, f)
		}
	}
	slices.SortFunc(sources, func(a, b file) int { return cmp.Compare(a.min, b.min) })
	var last file
	for _, f := range sources {
		n := len(out) - 1
		if n >= 0 && f.min == last.max+1 && len(out[n]) < maxInputs && f.time().Truncate(period).Equal(last.time().Truncate(period)) {
			out[n] = append(out[n], f)
		} else {
			out = append(out, []file{f})
		}
		last = f
	}
	return out
}

// covered returns a function that reports whether a file of a level has all pages of another file and
// leads to a state before a time.
func covered(all []file, level int, before time.Time) func(file) bool {
	var larger []file
	for _, f := range all {
		if f.level == level && f.max < before.UnixMilli() {
			larger = append(larger, f)
		}
	}
	slices.SortFunc(larger, func(a, b file) int { return cmp.Compare(a.min, b.min) })
	return func(f file) bool {
		i, found := slices.BinarySearchFunc(larger, f.min, func(g file, first int64) int { return cmp.Compare(g.min, first) })
		if !found {
			i--
		}
		return i >= 0 && f.max <= larger[i].max
	}
}

// snapshotDue returns the files that are to be merged into a file with all pages, or nil. Such a file
// makes restoring shorter and lets older files be removed. It is made when the others have become as
// large as the last one, at the latest after the time for which copies are kept.
func snapshotDue(all []file, now time.Time, keep time.Duration) []file {
	// Only files that are not merged into others any more: the chain keeps its ends.
	lasting := slices.DeleteFunc(slices.Clone(all), func(f file) bool { return f.level != levelHours && f.level != levelSnapshots })
	s := reach(lasting, now.UnixMilli())
	chain := s.chain(s.newest())
	if len(chain) < 2 || now.Sub(chain[0].time()) < snapshotEvery {
		return nil
	}
	added := int64(0)
	for _, f := range chain[1:] {
		added += f.size
	}
	if added < chain[0].size && now.Sub(chain[0].time()) < keep {
		return nil
	}
	return chain[:min(len(chain), maxInputs)]
}

// expired returns the files that no restore needs.
func expired(all []file, now time.Time, keep time.Duration) (out []file) {
	base, newest := int64(0), int64(0)
	for _, f := range all {
		if f.snapshot() && f.time().Before(now.Add(-keep)) {
			base = max(base, f.max)
		}
		newest = max(newest, f.max)
	}
	inMinutes, inHours := covered(all, levelMinutes, now.Add(-keepCopies)), covered(all, levelHours, now.Add(-keepMinutes))
	for _, f := range all {
		old := f.max <= base && !(f.snapshot() && f.max == base)
		switch {
		case f.max == newest: // where the next process resumes
		case old,
			f.level == levelCopies && inMinutes(f),
			f.level == levelMinutes && inHours(f):
			out = append(out, f)
		}
	}
	return out
}

// merge makes one file of several that follow each other.
func (f *follower) merge(ctx context.Context, group []file, level int) error {
	merged := file{level: level, min: group[0].min, max: group[len(group)-1].max}
	var damaged *damagedError
	size, err := putStream(ctx, f.place, merged.name(), func(w io.Writer) error {
		err := mergePages(ctx, f.place, group, w)
		damaged, _ = errors.AsType[*damagedError](err)
		return err
	})
	if damaged != nil {
		f.log.Error("a copy is damaged; the next copy has all pages", "file", damaged.file.name(), "error", damaged.err)
		f.forget(damaged.file)
		f.full.Store(true)
		return nil
	}
	if err != nil {
		return fmt.Errorf("merge copies into %s: %w", merged.name(), err)
	}
	merged.size = size
	f.add(merged)
	return nil
}

func mergePages(ctx context.Context, place Place, group []file, w io.Writer) error {
	var inputs []*source
	defer func() {
		for _, in := range inputs {
			_ = in.Close() // only read
		}
	}()
	var readers []io.Reader
	for _, f := range group {
		in, err := open(ctx, place, f)
		if err != nil {
			return err
		}
		inputs = append(inputs, in)
		readers = append(readers, in)
	}
	c, err := ltx.NewCompactor(w, readers)
	if err != nil {
		return err
	}
	c.HeaderFlags = ltx.HeaderFlagNoChecksum
	if err = c.Compact(ctx); err == nil {
		return nil
	}
	for _, f := range group { // to find the one that is the cause
		if _, bad := readPages(ctx, place, f, func(ltx.Header, uint32, []byte) error { return nil }); bad != nil {
			return bad
		}
	}
	return err
}
