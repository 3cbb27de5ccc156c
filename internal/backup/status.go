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

	// The last event of the copies, or one before it. In follower.status: of the data at the start.
	Event loquat.EventID `json:"event,omitzero"`

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

// thisProcess returns the status of a follower of a data directory.
func thisProcess(dir string) (s status, err error) {
	if s.Host, err = os.Hostname(); err != nil {
		return s, err
	}
	s.PID = os.Getpid()
	s.Dir, err = filepath.Abs(dir)
	return s, err
}

// dirID returns an id of a data directory that no other has, also on a host of the same name, unless
// another tool copied the directory. The lock of lockPlace must be held. If the id cannot be kept, the
// error says why: the id is then that of this process.
func dirID(dir, name string) (string, error) {
	path := placeFile(dir, name, "id")
	b, err := os.ReadFile(path)
	if id := string(b); err == nil && uuid.Validate(id) == nil {
		return id, nil
	}
	id := uuid.NewString()
	return id, os.WriteFile(path, []byte(id), 0o600)
}

// takeOver waits until no other follower writes to a place. Only one may: several would keep each a
// chain of its own, which takes more room, and remove each other's files early.
func (f *follower) takeOver(ctx context.Context) error {
	found, err := f.found(ctx)
	if err != nil || found == nil {
		return err
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
		now, err := f.found(ctx)
		if err != nil || now == nil || now.Ended {
			return err
		}
		if now.Process != found.Process || !now.Written.Equal(found.Written) {
			return f.second(*now)
		}
	}
	return nil
}

// found returns the status in the place, or nil, if this follower may continue the copies there.
func (f *follower) found(ctx context.Context) (*status, error) {
	found, err := readStatus(ctx, f.place)
	if err != nil || found == nil {
		return nil, err
	}
	if found.Server != f.status.Server {
		return nil, &takenError{fmt.Sprintf("%s has copies of another server (%s on %s); choose another destination; to run that server here, stop this one and restore the copies; remove them only if nobody needs them", f.name, found.Dir, found.Host)}
	}
	if own := f.status.Event; found.Event > own {
		return nil, &takenError{fmt.Sprintf("%s has copies up to event %s, and the data in %s end at event %s, so they are older than the copies; if another server has taken over from this one, stop this one; to go on with these data, make a `loquat backup` of them and start the server on that", f.name, found.Event, f.status.Dir, own)}
	}
	f.event.Store(int64(found.Event))
	return found, nil
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
	if found != nil && found.Process != f.status.Process && f.owns { // also if it has ended: the data may be older than its copies
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
	f.written.Store(now.Written.UnixMilli())
	return nil
}
