package sqlite

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Sizes of the write-ahead log and of its index, see https://sqlite.org/walformat.html.
const (
	walHeaderSize   = 32
	frameHeaderSize = 24
	indexHeaderSize = 48 // the file begins with two copies
)

// Position is a place in the write-ahead log: the end of a commit.
type Position struct {
	Salts    uint64 // name the generation of the log; SQLite changes them when it starts the log again
	Frames   uint32
	Checksum uint64 // of the last frame and of all before it; 0 if there is none
}

// errTorn reports that the header of the index changes at the moment.
var errTorn = errors.New("the index of the write-ahead log is being written")

// logFiles are the write-ahead log and its index, which other processes write.
//
// The index says where the newest commit ends that readers may see. The log alone does not: it
// has frames that are not on disk yet.
type logFiles struct {
	log, index *os.File
}

// kept has the open indexes of this process. A file of them must stay open: closing it would
// release the locks that SQLite holds on it in this process.
var kept struct {
	sync.Mutex
	files []*os.File
}

// openLog opens the files of a database that a connection has open.
func openLog(path string) (*logFiles, error) {
	index, err := os.Open(path + "-shm")
	if err != nil {
		return nil, err
	}
	kept.Lock()
	kept.files = append(kept.files, index)
	kept.Unlock()
	log, err := os.Open(path + "-wal")
	if err != nil {
		return nil, err
	}
	return &logFiles{log, index}, nil
}

func (l *logFiles) close() error { return l.log.Close() }

// end returns the end of the newest commit.
func (l *logFiles) end() (p Position, err error) {
	var b [2 * indexHeaderSize]byte
	if _, err := l.index.ReadAt(b[:], 0); err != nil {
		return Position{}, fmt.Errorf("read the index of the write-ahead log: %w", err)
	}
	const initialized = 12
	if !bytes.Equal(b[:indexHeaderSize], b[indexHeaderSize:]) || b[initialized] == 0 {
		return Position{}, errTorn
	}
	p.Frames = binary.NativeEndian.Uint32(b[16:])
	if p.Frames > 0 {
		p.Checksum = uint64(binary.NativeEndian.Uint32(b[24:]))<<32 | uint64(binary.NativeEndian.Uint32(b[28:]))
	}
	p.Salts = binary.BigEndian.Uint64(b[32:])
	return p, nil
}

// holds reports whether the log has the frames up to p, as part of the commits up to end.
func (l *logFiles) holds(p, end Position, pageSize uint32) (bool, error) {
	if p.Salts != end.Salts || p.Frames > end.Frames {
		return false, nil
	}
	if p.Frames == 0 {
		return true, nil
	}
	var b [frameHeaderSize]byte
	if _, err := l.log.ReadAt(b[:], frameOffset(p.Frames-1, pageSize)); err != nil {
		return false, fmt.Errorf("read the write-ahead log: %w", err)
	}
	return binary.BigEndian.Uint64(b[8:]) == p.Salts && binary.BigEndian.Uint64(b[16:]) == p.Checksum, nil
}

// pages calls fn with the page number of each frame from one number of frames to another.
func (l *logFiles) pages(from, to, pageSize uint32, fn func(uint32)) error {
	frame := int64(frameHeaderSize + pageSize)
	in := io.NewSectionReader(l.log, frameOffset(from, pageSize), int64(to-from)*frame)
	for offset := int64(0); offset < in.Size(); offset += frame {
		var b [4]byte
		if _, err := in.ReadAt(b[:], offset); err != nil {
			return fmt.Errorf("read the write-ahead log: %w", err)
		}
		fn(binary.BigEndian.Uint32(b[:]))
	}
	return nil
}

func frameOffset(frame, pageSize uint32) int64 {
	return walHeaderSize + int64(frame)*int64(frameHeaderSize+pageSize)
}
