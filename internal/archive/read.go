package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"time"

	"loquat"
	"loquat/internal/strictjson"
)

// The bounds of what is read of a session.
const (
	maxField   = 16 << 20  // bytes of a field of a session, other than messages and images
	maxMessage = 256 << 20 // bytes of a message as JSON
	maxTexts   = 512 << 20 // bytes of all messages of a session as JSON
	maxNotes   = 100       // of a session

	// depth is how deep a message nests, at most: its metadata may have loquat.MaxDepth levels.
	depth = loquat.MaxDepth + 4
)

// Options are the parts of a Reader.
type Options struct {
	// CreateTemp creates a file for an image. The Reader removes it when it reads the next session.
	CreateTemp func() (*os.File, error)
	// MaxImage is the largest size of an image in bytes.
	MaxImage int64
}

// Reader reads an archive, one session at a time.
type Reader struct {
	in   *strictjson.Stream
	opts Options
	temp []string // the files of the images of the present session
	left int      // bytes that the messages of the present session may still have
	note func(format string, args ...any)
}

// NewReader returns a Reader of the archive in r.
func NewReader(in *strictjson.Stream, opts Options) *Reader { return &Reader{in: in, opts: opts} }

// Sessions yields the sessions of an archive. An error ends it: the text is not an archive, or it
// is cut off.
func (r *Reader) Sessions() iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		defer r.removeTemp()
		if err := r.read(yield); err != nil && !errors.Is(err, errStopped) {
			yield(Item{}, err)
		}
	}
}

// errStopped reports that the caller wants no more sessions.
var errStopped = errors.New("stopped")

func (r *Reader) read(yield func(Item, error) bool) error {
	found := map[string]bool{}
	err := r.in.Object(func(name string) error {
		found[name] = true
		switch {
		case name == "format" || name == "version":
			return r.readHead(name)
		case name == "sessions" && (!found["format"] || !found["version"]):
			return errors.New("has sessions before its format and version")
		case name == "sessions":
			return r.readSessions(yield)
		default:
			return r.in.Skip()
		}
	})
	if err != nil {
		return err
	}
	for _, name := range []string{"format", "version", "sessions"} {
		if !found[name] {
			return fmt.Errorf("has no %q", name)
		}
	}
	return r.in.End()
}

func (r *Reader) readHead(name string) error {
	raw, err := r.in.Value(maxField, 1)
	if err != nil {
		return err
	}
	if name == "format" && string(raw) != `"`+format+`"` {
		return fmt.Errorf("has the format %s; must be %q", loquat.Clip(string(raw), loquat.Excerpt), format)
	}
	if name == "version" && string(raw) != fmt.Sprint(version) {
		return fmt.Errorf("has version %s of the format, and this program reads version %d; use a newer program", loquat.Clip(string(raw), loquat.Excerpt), version)
	}
	return nil
}

func (r *Reader) readSessions(yield func(Item, error) bool) error {
	return r.in.List(func(i int) error {
		item, err := r.readItem(i)
		if err == nil && !yield(item, nil) {
			err = errStopped
		}
		return err
	})
}

// readItem reads one session. It returns an error if nothing after the session can be read.
func (r *Reader) readItem(i int) (item Item, err error) {
	r.removeTemp()
	if _, err := r.in.Peek(); err != nil {
		return item, err
	}
	item.Place = fmt.Sprintf("sessions[%d], line %d", i, r.in.Line())
	more := 0
	r.note = func(format string, args ...any) {
		if len(item.Notes) < maxNotes {
			item.Notes = append(item.Notes, loquat.Clip(fmt.Sprintf(format, args...), loquat.MaxDetail))
		} else {
			more++
		}
	}
	r.left = maxTexts
	level := r.in.Depth()
	if first, err := r.in.Peek(); err != nil {
		return item, err
	} else if first != '{' {
		item.Err = errors.New("is not an object")
		return item, r.in.Skip()
	}
	err = r.readSession(&item.Session)
	if fault, ok := errors.AsType[*faultError](err); ok {
		item.Err, err = fault.err, r.in.Leave(level)
	}
	if more > 0 {
		item.Notes = append(item.Notes, fmt.Sprintf("and %d more", more))
	}
	return item, err
}

// faultError reports that a session cannot be read, but those after it can.
type faultError struct{ err error }

func (e *faultError) Error() string { return e.err.Error() }

func faultf(format string, args ...any) error { return &faultError{fmt.Errorf(format, args...)} }

// at turns the error of a value that was skipped into a fault of the session.
func at(place string, err error) error {
	if v, ok := errors.AsType[*strictjson.ValueError](err); ok {
		return faultf("%s (line %d) %s", place, v.Line, v.Message)
	}
	return err
}

func (r *Reader) readSession(s *Session) error {
	required := []string{"session_id", "agent_id", "created_at", "updated_at", "metadata", "images", "messages"}
	return r.readObject("", required, func(name string) error {
		switch name {
		case "images":
			return r.readList(name, func(place string) error { return r.readImage(place, s) })
		case "messages":
			return r.readMessages(name, &s.Messages)
		case "alternatives":
			return r.readList(name, func(place string) error { return r.readAlternative(place, s) })
		default:
			return r.readField(name, s)
		}
	})
}

// readObject calls read with the name of each field of an object, of which some are required.
func (r *Reader) readObject(prefix string, required []string, read func(name string) error) error {
	found := map[string]bool{}
	err := r.in.Object(func(name string) error {
		if found[name] {
			return faultf("%s%s is given twice", prefix, loquat.Clip(name, loquat.Excerpt))
		}
		found[name] = true
		return read(name)
	})
	if err != nil {
		return err
	}
	for _, name := range required {
		if !found[name] {
			return faultf("%s%s is missing", prefix, name)
		}
	}
	return nil
}

// readList calls read for each element of a list.
func (r *Reader) readList(name string, read func(place string) error) error {
	if first, err := r.in.Peek(); err != nil {
		return err
	} else if first != '[' {
		return errors.Join(faultf("%s is not a list", name), r.in.Skip())
	}
	return r.in.List(func(i int) error { return read(fmt.Sprintf("%s[%d]", name, i)) })
}

func (r *Reader) readField(name string, s *Session) error {
	var into any
	switch name {
	case "session_id":
		into = &s.SessionID
	case "agent_id":
		into = &s.AgentID
	case "source_session_id":
		into = &s.Origin.SourceSessionID
	case "source_index":
		into = &s.Origin.SourceIndex
	case "created_at":
		into = &s.CreatedAt
	case "updated_at":
		into = &s.UpdatedAt
	case "metadata":
		into = &s.Metadata
	default:
		return r.skipField(name)
	}
	if err := r.readInto(name, into); err != nil {
		return err
	}
	if name == "metadata" {
		if err := s.Metadata.CheckDepth(); err != nil {
			return faultf("metadata: %w", err)
		}
	}
	return nil
}

// skipField leaves out a field, with a note.
func (r *Reader) skipField(place string) error {
	r.note("%s is not known to this version and is left out", loquat.Clip(place, loquat.Excerpt))
	return r.in.Skip()
}

// readInto reads a small value.
func (r *Reader) readInto(place string, into any) error {
	raw, err := r.in.Value(maxField, depth)
	if err != nil {
		return at(place, err)
	}
	if string(raw) == "null" || json.Unmarshal(raw, into) != nil {
		return faultf("%s is %s; docs/archive.md says what it must be", place, loquat.Clip(string(raw), loquat.Excerpt))
	}
	if t, ok := into.(*time.Time); ok {
		return storeTime(place, t)
	}
	return nil
}

// readAlternative reads an alternative. Whether it fits the others is not checked here.
func (r *Reader) readAlternative(place string, s *Session) error {
	if len(s.Alternatives) == loquat.MaxAlternatives {
		return faultf("alternatives has more than %d elements", loquat.MaxAlternatives)
	}
	if first, err := r.in.Peek(); err != nil {
		return err
	} else if first != '{' {
		return errors.Join(faultf("%s is not an object", place), r.in.Skip())
	}
	a := loquat.AlternativeNode{Within: loquat.OfSession}
	given := false
	err := r.readObject(place+".", []string{"index", "created_at"}, func(name string) error {
		at := place + "." + name
		switch name {
		case "index":
			return r.readInto(at, &a.Index)
		case "within":
			if err := r.readInto(at, &a.Within); err != nil || a.Within >= 0 {
				return err
			}
			return faultf("%s is %d; it must be at least 0", at, a.Within)
		case "created_at":
			return r.readInto(at, &a.CreatedAt)
		case "in_place":
			return r.readInto(at, &a.InPlace)
		case "messages":
			given = true
			return r.readMessages(at, &a.Messages)
		default:
			return r.skipField(at)
		}
	})
	if err == nil && given == a.InPlace {
		err = faultf("%s must have either messages or in_place", place)
	}
	s.Alternatives = append(s.Alternatives, a)
	return err
}

// storeTime converts a time to UTC with the precision that a store keeps. The offset can move a time into a year that
// cannot be written as JSON. That is a fault of the session.
func storeTime(place string, t *time.Time) error {
	*t = time.UnixMicro(t.UnixMicro()).UTC()
	if year := t.Year(); year < 0 || year > 9999 {
		return faultf("%s is in the year %d in UTC; it must be in the years 0 to 9999", place, year)
	}
	return nil
}

func (r *Reader) readMessages(place string, into *[]loquat.Message) error {
	return r.readList(place, func(place string) error {
		m, err := r.readMessage(place)
		*into = append(*into, m)
		return err
	})
}

func (r *Reader) readMessage(place string) (m loquat.Message, err error) {
	raw, err := r.in.Value(maxMessage, depth)
	if err != nil {
		return m, at(place, err)
	}
	if r.left -= len(raw); r.left < 0 {
		return m, faultf("%s: the messages of the session have more than %d bytes", place, maxTexts)
	}
	var fields loquat.Object
	if json.Unmarshal(raw, &fields) != nil || fields == nil {
		return m, faultf("%s is not an object", place)
	}
	for name := range fields {
		switch name {
		case "id", "role", "content", "metadata", "created_at":
		default:
			r.note("%s.%s is not known to this version and is left out", place, loquat.Clip(name, loquat.Excerpt))
		}
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, faultf("%s cannot be read: %w", place, err)
	}
	switch {
	case m.ID == "" || len(m.ID) > 200:
		return m, faultf("%s.id must have 1 to 200 bytes", place)
	case !loquat.ValidRole(m.Role):
		return m, faultf("%s.role is %q; it must be user, assistant, system or tool", place, loquat.Clip(m.Role, loquat.Excerpt))
	case fields["content"] == nil || fields["created_at"] == nil:
		return m, faultf("%s has no content or no created_at", place)
	}
	if err := m.Metadata.CheckDepth(); err != nil {
		return m, faultf("%s.metadata: %w", place, err)
	}
	return m, storeTime(place+".created_at", &m.CreatedAt)
}

// imageFields are the fields of an image in an archive.
type imageFields struct {
	loquat.Asset
	Data string `json:"data"`
}

// readImage reads an image. One that is damaged is left out, and the rest of the session is read.
func (r *Reader) readImage(place string, s *Session) error {
	raw, err := r.in.Value(int(base64.StdEncoding.EncodedLen(int(r.opts.MaxImage)))+maxImageFields, depth)
	if v, ok := errors.AsType[*strictjson.ValueError](err); ok {
		r.note("%s (line %d) %s; the image is left out", place, v.Line, v.Message)
		return nil
	}
	if err != nil {
		return err
	}
	var in imageFields
	if err := json.Unmarshal(raw, &in); err != nil {
		r.note("%s cannot be read, and the image is left out: %v", place, err)
		return nil
	}
	path, err := r.storeImage(in)
	if fault, ok := errors.AsType[*faultError](err); ok {
		r.note("%s (%s) %s; the image is left out", place, loquat.Clip(in.AssetID, loquat.Excerpt), fault.err)
		return nil
	}
	if err != nil {
		return err
	}
	s.Images = append(s.Images, Image{Asset: in.Asset, Open: func() (io.ReadCloser, error) { return os.Open(path) }})
	return nil
}

// maxImageFields bounds the fields of an image other than its bytes.
const maxImageFields = 64 << 10

// storeImage writes the bytes of an image to a file, and checks that they are those of its hash.
func (r *Reader) storeImage(in imageFields) (path string, err error) {
	f, err := r.opts.CreateTemp()
	if err != nil {
		return "", fmt.Errorf("store an image: %w", err)
	}
	r.temp = append(r.temp, f.Name())
	hash, out := sha256.New(), bufio.NewWriter(f)
	n, err := io.Copy(io.MultiWriter(out, hash), base64.NewDecoder(base64.StdEncoding, bytes.NewReader([]byte(in.Data))))
	if _, broken := errors.AsType[base64.CorruptInputError](err); broken || errors.Is(err, io.ErrUnexpectedEOF) {
		err = faultf("is not valid base64")
	}
	if err = errors.Join(err, out.Flush(), f.Close()); err != nil {
		return "", err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != in.SHA256 || n != in.Size {
		return "", faultf("is damaged: its bytes do not have its sha256 and size")
	}
	return f.Name(), nil
}

func (r *Reader) removeTemp() {
	for _, path := range r.temp {
		_ = os.Remove(path)
	}
	r.temp = nil
}
