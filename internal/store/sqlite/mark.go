package sqlite

import (
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"loquat"
	"loquat/internal/store"
)

// markName is the file that notes the newest id given, beside the database.
const markName = "loquat.mark"

// markSyncEvery is how often the mark is brought to disk, beside the writer.
const markSyncEvery = 5 * time.Second

// markFile holds one line of a fixed length, which is written in place: an id of the
// store, its newest event and a checksum of both.
type markFile struct {
	log    *slog.Logger
	f      *os.File // nil: it cannot be used
	dirty  atomic.Bool
	size   int // of the line in the file; like failed it belongs to the committer
	failed bool

	found store.Mark
	known bool
}

// openMark reads the mark that the last process left. A mark that cannot be kept is no
// reason to refuse the data.
func openMark(dir string, log *slog.Logger) *markFile {
	m := &markFile{log: log}
	path := filepath.Join(dir, markName)
	var err error
	if m.found, m.known, err = readMark(path); err != nil {
		log.Warn("the newest event of the last run is not known, so that its loss would not show", "error", err)
	}
	if m.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		log.Warn("the newest event cannot be noted beside the database, so that its loss would not show", "error", err)
	}
	return m
}

// readMark reads a mark. A file that is missing or empty holds none.
func readMark(path string) (m store.Mark, ok bool, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(b) == 0 {
		return store.Mark{}, false, nil
	}
	if err != nil {
		return store.Mark{}, false, err
	}
	fields := strings.Fields(string(b))
	if len(fields) == 3 {
		m.StoreID = fields[0]
		m.Last, err = loquat.ParseEventID(fields[1])
		if err == nil && markLine(m) == string(b) {
			return m, true, nil
		}
	}
	return store.Mark{}, false, fmt.Errorf("%s is damaged", path)
}

func markLine(m store.Mark) string {
	text := m.StoreID + " " + m.Last.String()
	return fmt.Sprintf("%s %08x\n", text, crc32.ChecksumIEEE([]byte(text)))
}

// Marked returns the mark that the last process left.
func (db *DB) Marked() (store.Mark, bool) { return db.mark.found, db.mark.known }

// Mark notes the newest id that was given. It does not wait for the disk.
func (db *DB) Mark(m store.Mark) { db.mark.write(m) }

func (m *markFile) write(mark store.Mark) {
	if m.f == nil {
		return
	}
	line := []byte(markLine(mark))
	var err error
	if len(line) != m.size { // another store, or the first mark
		err = m.f.Truncate(0)
		m.size = len(line)
	}
	if err == nil {
		_, err = m.f.WriteAt(line, 0)
	}
	if err != nil && !m.failed {
		m.log.Warn("the newest event cannot be noted beside the database, so that its loss would not show", "error", err)
	}
	m.failed = err != nil
	m.dirty.Store(true)
}

// sync brings the mark to disk.
func (m *markFile) sync() {
	if m.f != nil && m.dirty.Swap(false) {
		_ = m.f.Sync() // what is not synced proves less, and is no failure of a change
	}
}

func (m *markFile) close() error {
	if m.f == nil {
		return nil
	}
	m.sync()
	return m.f.Close()
}
