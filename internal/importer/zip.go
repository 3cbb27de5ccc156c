package importer

import (
	"archive/zip"
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"strings"

	"loquat/internal/archive"
	"loquat/internal/strictjson"
)

// The bounds of ZIP files. A file of a few bytes may name millions of files, or become terabytes.
const (
	maxEntries   = 200_000
	maxDirectory = 64 << 20 // bytes of the list of files
	maxRatio     = 200      // of the bytes of a file to its compressed bytes
	freeBytes    = 16 << 20 // that a file may have at any ratio
)

// conversationFile matches the files of an export that have conversations.
var conversationFile = regexp.MustCompile(`^conversations(-[0-9]+)?\.json$`)

// zipFiles are the files of a ZIP file.
type zipFiles struct {
	source        *os.File // that Open opened; nil if its caller owns it
	conversations []*zip.File
	others        []*zip.File
}

func (z *zipFiles) close() {
	if z.source != nil {
		_ = z.source.Close()
	}
}

// openZIP reads the list of files. It needs a file, so it copies other readers to one.
func (f *File) openZIP(r io.Reader, buffered *bufio.Reader) error {
	f.files = &zipFiles{}
	file, ok := r.(*os.File)
	if !ok {
		var err error
		if file, err = f.opts.CreateTemp(); err != nil {
			return err
		}
		f.temp, f.files.source = file.Name(), file
		if _, err := io.Copy(file, buffered); err != nil {
			return err
		}
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := checkDirectory(file, info.Size()); err != nil {
		return err
	}
	in, err := zip.NewReader(file, info.Size())
	if err != nil {
		return fmt.Errorf("is not a whole ZIP file: %w", err)
	}
	for _, entry := range in.File {
		if conversationFile.MatchString(path.Base(entry.Name)) {
			f.files.conversations = append(f.files.conversations, entry)
		} else {
			f.files.others = append(f.files.others, entry)
		}
	}
	if len(f.files.conversations) == 0 {
		return errors.New("is a ZIP file without conversations.json; " + errUnknownFormat.Error())
	}
	f.items = f.readZIP
	return nil
}

// checkDirectory refuses a ZIP file whose list of files is too large for memory.
func checkDirectory(r io.ReaderAt, size int64) error {
	const endSize, maxComment = 22, 1 << 16
	tail := make([]byte, min(size, endSize+maxComment))
	if _, err := r.ReadAt(tail, size-int64(len(tail))); err != nil && err != io.EOF {
		return err
	}
	i := bytes.LastIndex(tail, []byte("PK\x05\x06"))
	if i < 0 || len(tail)-i < endSize {
		return errors.New("is not a whole ZIP file; it is cut off")
	}
	entries, bytes := uint64(binary.LittleEndian.Uint16(tail[i+10:])), uint64(binary.LittleEndian.Uint32(tail[i+12:]))
	if entries == 0xffff || bytes == 0xffffffff { // a larger record has them
		entries, bytes = largeDirectory(r, tail[:i], entries, bytes)
	}
	if entries > maxEntries || bytes > maxDirectory {
		return fmt.Errorf("has %d files; at most %d are read", entries, maxEntries)
	}
	return nil
}

// largeDirectory returns the number of files and the size of their list from the record of ZIP64,
// which a locator before the end names. zip.NewReader reports what is wrong with it.
func largeDirectory(r io.ReaderAt, before []byte, entries, size uint64) (uint64, uint64) {
	const locatorSize = 20
	record := make([]byte, 56)
	if len(before) < locatorSize || !bytes.HasPrefix(before[len(before)-locatorSize:], []byte("PK\x06\x07")) {
		return entries, size
	}
	at := binary.LittleEndian.Uint64(before[len(before)-locatorSize+8:])
	if n, _ := r.ReadAt(record, int64(at)); n < len(record) {
		return entries, size
	}
	return binary.LittleEndian.Uint64(record[32:]), binary.LittleEndian.Uint64(record[40:])
}

// readZIP yields the conversations of all files that have some.
func (f *File) readZIP(yield func(archive.Item, error) bool) {
	for _, entry := range f.files.conversations {
		content, err := open(entry)
		if err != nil {
			if !yield(archive.Item{Place: entry.Name, Err: err}, nil) {
				return
			}
			continue
		}
		stream, err := strictjson.NewStream(content)
		if err == nil {
			if !f.conversations(entry.Name, stream, yield) {
				content.Close()
				return
			}
		} else if !yield(archive.Item{Place: entry.Name, Err: err}, nil) {
			content.Close()
			return
		}
		content.Close()
	}
}

// find returns the file of an image: one whose name begins with the id, or has it as a folder.
func (z *zipFiles) find(id string) *zip.File {
	if z == nil || id == "" {
		return nil
	}
	for _, entry := range z.others {
		if base := path.Base(entry.Name); strings.HasPrefix(base, id) && !strings.HasSuffix(entry.Name, "/") {
			return entry
		}
	}
	return nil
}

// open opens a file. Reading fails once it has far more bytes than its compressed form.
func open(entry *zip.File) (io.ReadCloser, error) {
	content, err := entry.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", entry.Name, err)
	}
	return &bounded{content, entry.Name, freeBytes + maxRatio*int64(min(entry.CompressedSize64, 1<<40))}, nil
}

// bounded is a file of a ZIP file.
type bounded struct {
	io.ReadCloser
	name string
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("%s has more than %d times its compressed size, and is not read further", b.name, maxRatio)
	}
	return n, err
}
