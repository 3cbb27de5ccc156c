// Package importer reads files with sessions: archives, and the exports of other applications. It
// finds out the format by itself. It reads one conversation at a time, whatever the size of the
// file, and names what it cannot take over by its place in the file.
//
// A file is JSON, or a ZIP file that has conversations in JSON. Nothing is written under a name
// that a ZIP file gives.
package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"regexp"
	"slices"

	"loquat/internal/archive"
	"loquat/internal/heap"
	"loquat/internal/strictjson"
)

// The names of the formats.
const (
	Loquat    = "loquat"
	ChatGPT   = "chatgpt"
	Claude    = "claude"
	LibreChat = "librechat"
	OpenWebUI = "open-webui"
)

// The bounds of a conversation of another application.
const (
	maxConversation = 256 << 20 // bytes of JSON
	maxValues       = 1_000_000 // of JSON
	maxDepth        = 9000      // levels of JSON: LibreChat nests each answer in its question
	maxNotes        = 100       // of a conversation
)

// Options are the parts of a File.
type Options struct {
	// CreateTemp creates a file for an image, or for a ZIP file that does not come from a file.
	CreateTemp func() (*os.File, error)
	// MaxImage is the largest size of an image in bytes.
	MaxImage int64
	// AgentID is the agent of sessions of other applications.
	AgentID string
}

// File is a file that is read.
type File struct {
	// Format is the format of the file. Of a file of another application it is known after the
	// first session.
	Format string

	opts  Options
	items iter.Seq2[archive.Item, error]
	temp  string    // the copy of a ZIP file, removed by Close
	files *zipFiles // nil if the file is not a ZIP file
}

// errUnknownFormat reports that a file is none of the known ones.
var errUnknownFormat = errors.New("is neither an archive of Loquat nor an export of ChatGPT, Claude, LibreChat or Open WebUI; docs/moving-in.md says which files can be imported")

// Open begins to read a file. The caller closes the File. r is an *os.File if there is one, because
// another reader of a ZIP file is copied to a file first.
func Open(r io.Reader, opts Options) (*File, error) {
	f := &File{opts: opts}
	buffered := bufio.NewReaderSize(r, 64<<10)
	head, err := buffered.Peek(512)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte("PK")) {
		if err := f.openZIP(r, buffered); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	f.items, err = f.sessions("", buffered)
	return f, err
}

// archiveHead matches the beginning of an archive. Its fields may have any order.
var archiveHead = regexp.MustCompile(`^(\xef\xbb\xbf)?\s*\{\s*"(format|version|sessions)"`)

// sessions returns the sessions in a text: an archive, or conversations of other applications.
func (f *File) sessions(name string, in *bufio.Reader) (iter.Seq2[archive.Item, error], error) {
	head, err := in.Peek(512)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err := checkHead(head); err != nil {
		return nil, err
	}
	stream, err := strictjson.NewStream(in)
	if err != nil {
		return nil, err
	}
	if archiveHead.Match(head) {
		f.Format = cmp.Or(f.Format, Loquat)
		return archive.NewReader(stream, archive.Options{CreateTemp: f.opts.CreateTemp, MaxImage: f.opts.MaxImage}).Sessions(), nil
	}
	stream.MaxValues = maxValues
	return func(yield func(archive.Item, error) bool) { f.conversations(name, stream, yield) }, nil
}

// otherKinds are the first bytes of files that people give instead of the export.
var otherKinds = []struct{ head, what string }{
	{"\x1f\x8b", "is compressed with gzip; unpack it first"},
	{"BZh", "is compressed with bzip2; unpack it first"},
	{"\xfd7zXZ", "is compressed with xz; unpack it first"},
	{"\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first"},
	{"7z\xbc\xaf", "is a 7z file; unpack it first"},
	{"Rar!", "is a RAR file; unpack it first"},
	{"<", "is an HTML or XML page and not the export, maybe the page of an error; download the export again"},
	{"%PDF", "is a PDF file; export as JSON instead"},
}

// checkHead returns an error that says what a file is, if it is known and not an export.
func checkHead(head []byte) error {
	const tarMark = 257
	if len(head) > tarMark && bytes.HasPrefix(head[tarMark:], []byte("ustar")) {
		return errors.New("is a tar file; unpack it first")
	}
	begin := bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")))
	if len(head) == 0 {
		return errors.New("is empty")
	}
	for _, kind := range otherKinds {
		if bytes.HasPrefix(begin, []byte(kind.head)) {
			return errors.New(kind.what)
		}
	}
	return nil
}

// Sessions yields the sessions of the file. An error ends it: the rest of the file cannot be read.
func (f *File) Sessions() iter.Seq2[archive.Item, error] { return f.items }

// Close removes what was kept of the file.
func (f *File) Close() {
	if f.files != nil {
		f.files.close()
	}
	if f.temp != "" {
		_ = os.Remove(f.temp)
	}
}

// conversations yields the conversations in a JSON text: a list of them, or a single one.
func (f *File) conversations(name string, in *strictjson.Stream, yield func(archive.Item, error) bool) {
	err := f.eachConversation(name, in, func(item archive.Item) error {
		if !yield(item, nil) {
			return errStopped
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStopped) {
		yield(archive.Item{}, err)
	}
}

// errStopped reports that the caller wants no more sessions.
var errStopped = errors.New("stopped")

// maxStrange is how many values come before the first conversation, at most.
const maxStrange = 100

func (f *File) eachConversation(name string, in *strictjson.Stream, each func(archive.Item) error) error {
	first, err := in.Peek()
	if err != nil {
		return err
	}
	var strange []archive.Item // until there is a conversation, it is not known whether the file is an export
	next := func(index string) error {
		if _, err := in.Peek(); err != nil {
			return err
		}
		item, err := f.conversation(placeIn(name, index, in.Line()), in)
		if err != nil {
			return err
		}
		if strange = append(strange, item); f.Format == "" && item.Err == errNoConversation {
			if len(strange) > maxStrange {
				return errUnknownFormat
			}
			return nil
		}
		for _, item := range strange {
			if err := each(item); err != nil {
				return err
			}
		}
		strange = nil
		return nil
	}
	switch first {
	case '{':
		err = next("")
	case '[':
		err = in.List(func(i int) error { return next(fmt.Sprintf("[%d]", i)) })
	default:
		return errUnknownFormat
	}
	if err == nil && len(strange) > 0 {
		err = errUnknownFormat
	}
	if err != nil {
		return err
	}
	return in.End()
}

// errNoConversation reports that a value is not a conversation of a known application.
var errNoConversation = errors.New("is not a conversation that can be read")

// placeIn returns the place of a conversation in a file of a ZIP file, or in the only file.
func placeIn(name, index string, line int) string {
	place := name + index
	if place == "" {
		place = "conversation"
	}
	return fmt.Sprintf("%s, line %d", place, line)
}

// format is an application whose exports can be read.
type format struct {
	name string
	keys []string // that a conversation has, and no other application's conversation
	read func(c *conversation, raw []byte) error
}

// conversation reads one conversation. It returns an error if nothing after it can be read.
func (f *File) conversation(place string, in *strictjson.Stream) (archive.Item, error) {
	item := archive.Item{Place: place}
	raw, err := in.Value(maxConversation, maxDepth)
	if v, ok := errors.AsType[*strictjson.ValueError](err); ok {
		item.Err = v
		return item, nil
	}
	if err != nil {
		return item, err
	}
	if len(raw) >= heap.Large {
		defer heap.Hold()()
	}
	keys := keysOf(raw)
	for _, kind := range formats {
		if !kind.matches(keys) {
			continue
		}
		if f.Format == "" {
			f.Format = kind.name
		}
		c := &conversation{kind: kind.name, raw: raw, files: f.files, agent: f.opts.AgentID, mayCopy: freeCopies + maxCopies*len(raw), mayRepeat: freeRepeats + maxRepeats*len(raw)}
		item.Err = kind.read(c, raw)
		var err error
		if item.Session, item.Notes, err = c.finish(); item.Err == nil {
			item.Err = err
		}
		return item, nil
	}
	item.Err = errNoConversation
	return item, nil
}

func (f format) matches(keys map[string]bool) bool {
	return !slices.ContainsFunc(f.keys, func(key string) bool { return !keys[key] })
}
