package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"loquat"
)

// statusName is the file in a place that says who writes there.
const statusName = "loquat.json"

// How often a follower writes its status, and how long a status without a change counts as that of a
// running follower.
const (
	statusEvery  = 10 * time.Second
	statusExpiry = 3 * statusEvery
	maxStatus    = 64 << 10
)

// status is what a follower says about itself.
type status struct {
	Server  string    `json:"server"`  // the id of the server, which restored copies keep
	Process string    `json:"process"` // random
	Host    string    `json:"host"`
	PID     int       `json:"pid"`
	Dir     string    `json:"dir"`              // the data directory
	DirID   string    `json:"dir_id,omitempty"` // see dirID
	Written time.Time `json:"written"`          // when this was written
	Checked time.Time `json:"checked,omitzero"` // the newest state is still that of this time
	Newest  time.Time `json:"newest,omitzero"`  // the time of the newest state

	Event loquat.EventID `json:"event,omitzero"` // the last event of the data that were copied

	Every   float64 `json:"every_seconds"`
	Keep    float64 `json:"keep_seconds"`
	Ended   bool    `json:"ended,omitempty"`  // the follower has stopped
	Failing string  `json:"failing,omitzero"` // why copies fail at present
}

// readStatus returns the status in a place, or nil.
func readStatus(ctx context.Context, place Place) (*status, error) {
	in, err := place.Get(ctx, statusName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, maxStatus))
	if err != nil {
		return nil, err
	}
	var s status
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%s is damaged; remove it if no other follower writes there: %w", statusName, err)
	}
	return &s, nil
}

func (s status) write(ctx context.Context, place Place) error {
	b, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	b = append(b, '\n')
	return place.Put(ctx, statusName, int64(len(b)), bytes.NewReader(b))
}

// thisProcess returns the status of a follower that copies a data directory to a place.
func thisProcess(dir, name string) (s status, err error) {
	if s.Host, err = os.Hostname(); err != nil {
		return s, err
	}
	s.PID = os.Getpid()
	if s.Dir, err = filepath.Abs(dir); err != nil {
		return s, err
	}
	s.DirID, err = dirID(dir, name)
	return s, err
}

// dirID returns an id of a data directory that no other has, also on a host of the same name, unless
// another tool copied the directory. The lock of lockPlace must be held.
func dirID(dir, name string) (string, error) {
	path := placeFile(dir, name, "id")
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	if id := string(b); uuid.Validate(id) == nil {
		return id, nil
	}
	id := uuid.NewString()
	return id, os.WriteFile(path, []byte(id), 0o600)
}

// takeOver waits until no other follower writes to a place. Only one may: several would keep each a
// chain of its own, which takes more room, and remove each other's files early.
func (f *follower) takeOver(ctx context.Context) error {
	found, err := readStatus(ctx, f.place)
	if err != nil || found == nil {
		return err
	}
	if found.Server != f.status.Server {
		return &takenError{fmt.Sprintf("%s has copies of another server (%s on %s); choose another destination; to run that server here, stop this one and restore the copies; remove them only if nobody needs them", f.name, found.Dir, found.Host)}
	}
	if own := loquat.EventID(f.event.Load()); found.Event > own {
		return &takenError{fmt.Sprintf("%s has copies up to event %s, and the data in %s end at event %s, so they are older than the copies; if another server has taken over from this one, stop this one; to go on with these data, make a `loquat backup` of them and start the server on that", f.name, found.Event, f.status.Dir, own)}
	}
	// The lock of the data directory says that a follower of this directory is dead.
	if found.Ended || found.DirID == f.status.DirID && found.Dir == f.status.Dir && found.Host == f.status.Host {
		return nil
	}
	f.log.Info("waiting whether another follower still writes to the destination", "host", found.Host, "pid", found.PID, "seconds", statusExpiry.Seconds())
	for began := time.Now(); time.Since(began) < f.expiry; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.expiry / 30):
		}
		now, err := readStatus(ctx, f.place)
		if err != nil {
			return err
		}
		if now == nil || now.Ended {
			return nil
		}
		if now.Process != found.Process || !now.Written.Equal(found.Written) {
			return f.second(*now)
		}
	}
	return nil
}

// takenError reports that a place belongs to another follower.
type takenError struct{ text string }

func (e *takenError) Error() string { return e.text }

// second returns the error that another follower writes to the place.
func (f *follower) second(other status) error {
	return &takenError{fmt.Sprintf("another follower writes to %s: process %d on %s, for %s; stop it, or choose another destination", f.name, other.PID, other.Host, other.Dir)}
}

// writeStatus writes the status, unless another follower has begun to write to the place.
func (f *follower) writeStatus(ctx context.Context) error {
	found, err := readStatus(ctx, f.place)
	if err != nil {
		return err
	}
	if found != nil && found.Process != f.status.Process && !found.Ended && f.owns {
		return f.second(*found)
	}
	now := f.status
	now.Written, now.Event = time.Now().UTC(), loquat.EventID(f.event.Load())
	if newest := f.newest.Load(); newest > 0 {
		now.Checked, now.Newest = time.UnixMilli(max(newest, f.checked.Load())).UTC(), time.UnixMilli(newest).UTC()
	}
	if failing := f.failing.Load(); failing != nil {
		now.Failing = *failing
	}
	if err := now.write(ctx, f.place); err != nil {
		return err
	}
	f.owns = true
	return nil
}
