package importer

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"loquat/internal/archive"
)

// The bounds of ZIP files. A file of a few bytes may name millions of files, or become terabytes.
const (
	maxEntries   = 200_000
	maxDirectory = 64 << 20 // bytes that are read to find the files
	maxRatio     = 200      // of the bytes of a file to its compressed bytes
	freeBytes    = 16 << 20 // that a file may have at any ratio
)

// conversationFile matches the files of an export that have conversations. If a ZIP file has none of
// them, all files of JSON in it may have some.
var (
	conversationFile = regexp.MustCompile(`(?i)^conversations(-[0-9]+)?\.json$`)
	jsonFile         = regexp.MustCompile(`(?i)^[^.].*\.json$`) // without the hidden files that macOS adds
)

// zipFiles are the files of a ZIP file.
type zipFiles struct {
	source        *os.File // that Open opened; nil if its caller owns it
	conversations []*zip.File
	others        []*zip.File // sorted by their names without folders
}

func (z *zipFiles) close() {
	if z.source != nil {
		_ = z.source.Close()
	}
}

// isRegular reports whether a file can be read at any place. Standard input may be a pipe.
func isRegular(file *os.File) bool {
	info, err := file.Stat()
	return err == nil && info.Mode().IsRegular()
}

// openZIP reads the list of files. It needs a file, so it copies other readers to one.
func (f *File) openZIP(r io.Reader, buffered *bufio.Reader) error {
	f.files = &zipFiles{}
	file, ok := r.(*os.File)
	if !ok || !isRegular(file) {
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
	directory := &directoryReader{ReaderAt: file}
	in, err := zip.NewReader(directory, info.Size())
	switch {
	case errors.Is(err, errManyFiles):
		return err
	case err != nil:
		return fmt.Errorf("is not a whole ZIP file; it is damaged or cut off: %w", err)
	}
	directory.whole = true
	if !f.files.sort(in.File, conversationFile) && !f.files.sort(in.File, jsonFile) {
		return errors.New("is a ZIP file without conversations.json and without other JSON files; docs/moving-in.md says which files can be imported")
	}
	f.items = f.readZIP
	return nil
}

// sort sets the files, of which those whose name matches have conversations. It reports whether there
// are any.
func (z *zipFiles) sort(files []*zip.File, name *regexp.Regexp) bool {
	z.conversations, z.others = nil, nil
	for _, entry := range files {
		switch {
		case strings.HasSuffix(entry.Name, "/"):
		case name.MatchString(path.Base(entry.Name)):
			z.conversations = append(z.conversations, entry)
		default:
			z.others = append(z.others, entry)
		}
	}
	slices.SortStableFunc(z.others, func(a, b *zip.File) int { return cmp.Compare(path.Base(a.Name), path.Base(b.Name)) })
	return len(z.conversations) > 0
}

// directoryReader bounds what is read of a ZIP file while its list of files is read. The numbers at the
// end of the file, which anybody can write, do not bound the list.
type directoryReader struct {
	io.ReaderAt
	whole       bool // the list was read
	size, files int
}

func (d *directoryReader) ReadAt(p []byte, at int64) (int, error) {
	n, err := d.ReaderAt.ReadAt(p, at)
	if d.whole {
		return n, err
	}
	d.size += n
	d.files += bytes.Count(p[:n], []byte("PK\x01\x02")) // without those between two reads, which are few
	if d.size > maxDirectory || d.files > maxEntries {
		return 0, errManyFiles
	}
	return n, err
}

// errManyFiles reports that the list of files is too large for memory.
var errManyFiles = fmt.Errorf("has too many files; at most %d are read", maxEntries)

// readZIP yields the conversations of all files that have some. If one of several files cannot be
// read, the others are.
func (f *File) readZIP(yield func(archive.Item, error) bool) {
	for _, entry := range f.files.conversations {
		more, err := f.readEntry(entry, yield)
		if err != nil && len(f.files.conversations) == 1 {
			yield(archive.Item{}, fmt.Errorf("has %s, which %w", entry.Name, err))
			return
		}
		if err != nil {
			more = yield(archive.Item{Place: entry.Name, Err: err}, nil)
		}
		if !more {
			return
		}
	}
}

// readEntry yields the conversations of a file. It returns false if the caller wants no more, and an
// error if the rest of the file cannot be read.
func (f *File) readEntry(entry *zip.File, yield func(archive.Item, error) bool) (more bool, err error) {
	content, err := open(entry)
	if err != nil {
		return true, err
	}
	defer content.Close()
	items, err := f.sessions(entry.Name, bufio.NewReaderSize(content, 64<<10))
	if err != nil {
		return true, err
	}
	for item, err := range items {
		if err != nil {
			return true, err
		}
		if !strings.HasPrefix(item.Place, entry.Name) { // of an archive
			item.Place = entry.Name + ": " + item.Place
		}
		if !yield(item, nil) {
			return false, nil
		}
	}
	return true, nil
}

// find returns the file of an image. Its name is the id, followed by a name or a suffix.
func (z *zipFiles) find(id string) *zip.File {
	if z == nil || id == "" {
		return nil
	}
	for _, end := range []string{"", "-", ".", "_"} { // of the id, in the order of the names
		i, _ := slices.BinarySearchFunc(z.others, id+end, func(entry *zip.File, name string) int { return cmp.Compare(path.Base(entry.Name), name) })
		if i == len(z.others) {
			continue
		}
		if name := path.Base(z.others[i].Name); name == id || end != "" && strings.HasPrefix(name, id+end) {
			return z.others[i]
		}
	}
	return nil
}

// encrypted is the flag of a file that needs a password.
const encrypted = 1

// open opens a file. Reading fails once it has far more bytes than its compressed form.
func open(entry *zip.File) (io.ReadCloser, error) {
	if entry.Flags&encrypted != 0 {
		return nil, errors.New("is encrypted; unpack the ZIP file with its password first")
	}
	content, err := entry.Open()
	if err != nil {
		return nil, fmt.Errorf("cannot be unpacked: %w", err)
	}
	return &bounded{content, freeBytes + maxRatio*int64(min(entry.CompressedSize64, 1<<40))}, nil
}

// bounded is a file of a ZIP file.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("has more than %d times its compressed size, and is not read further", maxRatio)
	}
	if err != nil && err != io.EOF {
		err = fmt.Errorf("is damaged and cannot be unpacked: %w", err)
	}
	return n, err
}
