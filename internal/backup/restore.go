package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"syscall"
	"time"

	"github.com/superfly/ltx"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/check"
	"loquat/internal/store"
	"loquat/internal/store/sqlite"
)

// Restored describes a restored data directory.
type Restored struct {
	Report
	Time time.Time // it has all that was committed before
}

// restoreTries is how often a restore begins again because the follower has merged files meanwhile.
const restoreTries = 3

// Restore makes the data directory to from the newest state in a place at or before a time. The zero
// time is the newest state. The directory gets its name when it is verified.
func Restore(ctx context.Context, place Place, to string, at time.Time) (r Restored, err error) {
	notes, err := makeDir(to, func(work string) error {
		r, err = restore(ctx, place, work, at)
		return err
	})
	if err != nil {
		return Restored{}, err
	}
	r.Notes = notes
	return r, nil
}

func restore(ctx context.Context, place Place, work string, at time.Time) (r Restored, err error) {
	var hashes []string
	if r, hashes, err = restoreStore(ctx, place, work, at); err != nil {
		return Restored{}, err
	}
	for _, hash := range hashes {
		err := restoreImage(ctx, place, filepath.Join(work, "assets"), hash)
		if files.IsLost(err) {
			r.Lost = append(r.Lost, hash)
		} else if err != nil {
			return Restored{}, fmt.Errorf("restore an image: %w", err)
		}
	}
	r.Images = len(hashes) - len(r.Lost)
	return r, nil
}

// restoreStore makes the database file and returns the images that it names.
func restoreStore(ctx context.Context, place Place, work string, at time.Time) (r Restored, hashes []string, err error) {
	for range restoreTries {
		if err := sqlite.Remove(work); err != nil {
			return Restored{}, nil, err
		}
		r.Time, err = apply(ctx, place, work, at)
		if !errors.Is(err, errMissing) {
			break
		}
	}
	if err != nil {
		return Restored{}, nil, err
	}
	var wrong error
	err = sqlite.Finish(ctx, work, func(q store.SQL) (err error) {
		store.Verify(q, false, func(text string) { wrong = errors.Join(wrong, errors.New(text)) })
		r.Last, hashes, err = store.MarkCopy(q)
		return err
	})
	if err = errors.Join(err, wrong); err != nil {
		return Restored{}, nil, fmt.Errorf("the state of %s is damaged; restore another one (--at): %w", TimeText(r.Time), err)
	}
	return r, hashes, nil
}

// timeFormat is how times are shown and may be given: what `loquat backup --list` shows is exact.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// TimeText returns a time as messages show it. It can be given to loquat restore.
func TimeText(t time.Time) string { return t.UTC().Format(timeFormat) }

func timeText(ms int64) string { return TimeText(time.UnixMilli(ms)) }

// errNothing reports that a place has no state that was asked for.
var errNothing = errors.New("there is no state to restore")

// noCopies returns the error of a place without copies.
func noCopies() error {
	return fmt.Errorf("%w; `loquat backup --follow` makes some. A full backup is itself a data directory: copy it to where the data directory was. `loquat check --data` verifies it", errNothing)
}

// plan returns the files that make a state.
func plan(ctx context.Context, place Place, at time.Time) ([]file, error) {
	all, err := listFiles(ctx, place)
	if err != nil {
		return nil, err
	}
	upTo := int64(1 << 62)
	if !at.IsZero() {
		upTo = at.UnixMilli()
	}
	s := reach(all, upTo)
	if len(s.times) > 0 {
		return s.chain(s.newest()), nil
	}
	if oldest := reach(all, 1<<62).times; len(oldest) > 0 {
		return nil, fmt.Errorf("%w at %s; the oldest is that of %s", errNothing, timeText(upTo), timeText(oldest[0]))
	}
	return nil, noCopies()
}

// apply makes the database file of a state and returns the time of the state.
func apply(ctx context.Context, place Place, work string, at time.Time) (time.Time, error) {
	chain, err := plan(ctx, place, at)
	if err != nil {
		return time.Time{}, err
	}
	out, err := sqlite.Create(work)
	if err != nil {
		return time.Time{}, err
	}
	size := int64(0)
	for _, f := range chain {
		h, err := readPages(ctx, place, f, func(h ltx.Header, page uint32, data []byte) error {
			_, err := out.WriteAt(data, int64(page-1)*int64(h.PageSize))
			return err
		})
		if err != nil {
			return time.Time{}, errors.Join(remedied(err, f), out.Close())
		}
		size = int64(h.Commit) * int64(h.PageSize)
	}
	if err := errors.Join(out.Truncate(size), out.Close()); err != nil {
		return time.Time{}, remedied(err, chain[len(chain)-1])
	}
	return chain[len(chain)-1].time(), nil
}

// remedied adds to an error what to do.
func remedied(err error, f file) error {
	_, damaged := errors.AsType[*damagedError](err)
	switch {
	case errors.Is(err, errMissing):
		return err
	case damaged:
		return fmt.Errorf("%w; restore a state before it, with --at %s or earlier, or a newer one that does not need it", err, timeText(max(f.min-2, 0)))
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("the disk is full; make room, or restore to another disk: %w", err)
	}
	return err
}

// restoreImage copies an image from a place and checks its bytes. The error is one of files.IsLost if
// they are not there.
func restoreImage(ctx context.Context, place Place, dir, hash string) error {
	if !asset.IsHash(hash) {
		return files.ErrDamaged
	}
	in, err := place.Get(ctx, imageName(hash))
	if err != nil {
		return err
	}
	defer in.Close()
	return files.Write(dir, hash, cancelReader{ctx, in})
}

// Verified describes a verified place.
type Verified struct {
	Files, Images int
	Bytes         int64
	Newest        time.Time
	Totals        store.Totals // of the newest state
	Problems      []string
}

// Verify reads all files in a place, restores the newest state to a temporary directory and checks it.
// The directory is removed. Problems name the files and what to do.
func Verify(ctx context.Context, place Place, log *slog.Logger) (v Verified, err error) {
	all, err := listFiles(ctx, place)
	if err != nil {
		return Verified{}, err
	}
	for _, f := range all {
		_, err := readPages(ctx, place, f, func(ltx.Header, uint32, []byte) error { return nil })
		switch _, damaged := errors.AsType[*damagedError](err); {
		case errors.Is(err, errMissing): // merged into another one meanwhile
			continue
		case damaged:
			v.Problems = append(v.Problems, fmt.Sprintf("%v; states from %s to %s cannot be restored. Restart the command that copies: it makes a full copy", err, timeText(f.min), timeText(f.max)))
		case err != nil:
			return Verified{}, err
		}
		v.Files++
		v.Bytes += f.size
	}
	sound, err := v.verifyImages(ctx, place)
	if err != nil {
		return Verified{}, err
	}
	return v, v.verifyNewest(ctx, place, sound, log)
}

// verifyImages hashes all images and returns the sizes of those that are sound.
func (v *Verified) verifyImages(ctx context.Context, place Place) (sound map[string]int64, err error) {
	sound = map[string]int64{}
	return sound, place.List(ctx, "assets/", func(name string, size int64) error {
		if !asset.IsHash(path.Base(name)) {
			return nil // of somebody else
		}
		v.Images++
		v.Bytes += size
		in, err := place.Get(ctx, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer in.Close()
		sum := sha256.New()
		if _, err := io.Copy(sum, cancelReader{ctx, in}); err != nil {
			return err
		}
		if hash := hex.EncodeToString(sum.Sum(nil)); hash == path.Base(name) {
			sound[hash] = size
		} else {
			v.Problems = append(v.Problems, name+" is damaged; remove it and restart the command that copies: it copies the image again")
		}
		return nil
	})
}

// verifyNewest restores the newest state and checks it.
func (v *Verified) verifyNewest(ctx context.Context, place Place, sound map[string]int64, log *slog.Logger) (err error) {
	work, err := os.MkdirTemp("", "loquat-verify-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	r, _, err := restoreStore(ctx, place, work, time.Time{})
	if err != nil {
		if ctx.Err() == nil {
			v.Problems = append(v.Problems, fmt.Sprintf("the newest state cannot be restored: %v", err))
		}
		return ctx.Err()
	}
	v.Newest = r.Time
	found, err := check.Run(ctx, work, true, log)
	if err != nil {
		return err
	}
	v.Totals = found.Totals
	for _, p := range found.Problems {
		if p.Kind != check.Image { // which stay in the place
			v.Problems = append(v.Problems, fmt.Sprintf("the newest state: %s: %s; run loquat check on the data directory", p.Kind, loquat.Clip(p.Text, loquat.Excerpt)))
		}
	}
	return v.compareImages(ctx, work, sound, log)
}

// compareImages reports the images that the restored state names and that the place does not have.
func (v *Verified) compareImages(ctx context.Context, work string, sound map[string]int64, log *slog.Logger) (err error) {
	in, err := sqlite.Inspect(ctx, work, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	var named []store.ImageFile
	err = in.Read(ctx, func(q store.SQL) (err error) {
		named, err = store.ImageFiles(q)
		return err
	})
	for _, image := range named {
		if size, ok := sound[image.SHA256]; !ok || size != image.Size {
			v.Problems = append(v.Problems, fmt.Sprintf("%s is missing, which the newest state names; run loquat check on the data directory, and restart the command that copies", imageName(image.SHA256)))
		}
	}
	return err
}

// Span is a number of states that can be restored.
type Span struct {
	Level       string // how close they are: seconds, minutes or hours
	First, Last time.Time
	States      int
}

// Listing says what a place has.
type Listing struct {
	Oldest, Newest time.Time
	Checked        time.Time // the newest state is still that of this time; zero if unknown
	Spans          []Span
	Bytes          int64
	Writer         string // who writes to the place, or why nobody does
	Failing        string // why copies fail at present, or empty
}

// levelNames are the words for the distance of states.
var levelNames = map[int]string{levelCopies: "seconds", levelMinutes: "minutes", levelHours: "hours", levelSnapshots: "full copies"}

// List returns which states of a place can be restored.
func List(ctx context.Context, place Place) (l Listing, err error) {
	all, err := listFiles(ctx, place)
	if err != nil {
		return Listing{}, err
	}
	s := reach(all, 1<<62)
	if len(s.times) == 0 {
		return Listing{}, noCopies()
	}
	l.Oldest, l.Newest = time.UnixMilli(s.times[0]), time.UnixMilli(s.newest())
	for _, f := range all {
		l.Bytes += f.size
	}
	for _, level := range []int{levelSnapshots, levelHours, levelMinutes, levelCopies} {
		var span Span
		for _, at := range s.times {
			if s.last[at].level != level {
				continue
			}
			if span.States++; span.States == 1 {
				span.First = time.UnixMilli(at)
			}
			span.Last = time.UnixMilli(at)
		}
		if span.Level = levelNames[level]; span.States > 0 {
			l.Spans = append(l.Spans, span)
		}
	}
	now, err := readStatus(ctx, place)
	if err != nil || now == nil {
		return l, err
	}
	l.Checked, l.Failing = now.Checked, now.Failing
	l.Writer = fmt.Sprintf("process %d on %s, for %s", now.PID, now.Host, now.Dir)
	if now.Ended {
		l.Writer += ", which has stopped"
	}
	return l, nil
}
