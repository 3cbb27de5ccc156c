package datadir

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

// MarkName is the file that holds the mark, next to the database.
const MarkName = "loquat.mark"

// MarkSyncEvery is how often the mark is synced to disk.
const MarkSyncEvery = 5 * time.Second

// MarkFile holds one line of fixed length, which is overwritten in place: store id, newest
// event id, and a checksum of both.
type MarkFile struct {
	log    *slog.Logger
	f      *os.File // nil if the file cannot be opened
	dirty  atomic.Bool
	size   int // length of the line; owned by the committer, like failed
	failed bool

	found store.Mark
	known bool
}

// OpenMark reads the mark of the last process. Without a usable mark file the store still
// opens; only loss detection is off.
func OpenMark(dir string, log *slog.Logger) *MarkFile {
	m := &MarkFile{log: log}
	path := filepath.Join(dir, MarkName)
	var err error
	if m.found, m.known, err = ReadMark(path); err != nil {
		log.Warn("the mark of the last run cannot be read; lost events would go unnoticed", "error", err)
	}
	if m.f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		log.Warn("the mark cannot be written; lost events would go unnoticed; let the user of the server write it", "error", err)
	}
	return m
}

// ReadMark reads a mark file. A missing or empty file has no mark.
func ReadMark(path string) (m store.Mark, ok bool, err error) {
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

// Marked returns the mark of the last process.
func (m *MarkFile) Marked() (store.Mark, bool) { return m.found, m.known }

// Mark writes the newest event id. It does not wait for the disk.
func (m *MarkFile) Mark(mark store.Mark) {
	if m.f == nil {
		return
	}
	line := []byte(markLine(mark))
	var err error
	if len(line) != m.size { // the first mark, or that of another store
		err = m.f.Truncate(0)
		m.size = len(line)
	}
	if err == nil {
		_, err = m.f.WriteAt(line, 0)
	}
	if err != nil && !m.failed {
		m.log.Warn("the mark cannot be written; lost events would go unnoticed; let the user of the server write it", "error", err)
	}
	m.failed = err != nil
	m.dirty.Store(true)
}

// Sync syncs the mark to disk.
func (m *MarkFile) Sync() {
	if m.f != nil && m.dirty.Swap(false) {
		_ = m.f.Sync() // a failure only weakens loss detection; no change fails
	}
}

// Close syncs and closes the file.
func (m *MarkFile) Close() error {
	if m.f == nil {
		return nil
	}
	m.Sync()
	return m.f.Close()
}
