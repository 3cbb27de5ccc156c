// Package archive reads and writes archives: JSON files with sessions, their messages and their
// images. docs/archive.md describes the format, and docs/archive.schema.json is its schema.
//
// A session has exactly one form in an archive. So an archive that was imported is exported again
// as the same bytes.
package archive

import (
	"crypto/sha256"
	"fmt"
	"io"
	"time"

	"loquat"
)

// format and version are in the head of every archive. The version changes when a reader of the older
// version would misunderstand an archive. A reader that finds a field that it does not know reads
// the rest and reports the field, so new fields do not change the version.
const (
	format  = "loquat-archive"
	version = 1
)

// Session is a session in an archive.
type Session struct {
	SessionID string
	AgentID   string
	CreatedAt time.Time
	UpdatedAt time.Time
	Metadata  loquat.Object
	Images    []Image // in the order in which the messages use them
	Messages  []loquat.Message
	Origin    loquat.Origin

	// Alternatives are in the order in which they came.
	Alternatives []loquat.AlternativeNode
}

// EachMessage calls visit with every message and its place in the archive, first those of the
// session and then those of its alternatives. It stops at an error.
func (s Session) EachMessage(visit func(place string, m *loquat.Message) error) error {
	for i := range s.Messages {
		if err := visit(fmt.Sprintf("messages[%d]", i), &s.Messages[i]); err != nil {
			return err
		}
	}
	for i, a := range s.Alternatives {
		for j := range a.Messages {
			if err := visit(fmt.Sprintf("alternatives[%d].messages[%d]", i, j), &a.Messages[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Image is an image of a session. Its messages name it by asset_id.
type Image struct {
	loquat.Asset

	// Open returns the bytes.
	Open func() (io.ReadCloser, error)
}

// Item is the next session of a file that is read. If Err is set, the session cannot be read, but
// the sessions after it can.
type Item struct {
	Place   string // of the session in the file, such as sessions[3], line 12
	Session Session
	Notes   []string // what the session has lost
	Err     error
}

// Digest returns a hash of a session. Of images it includes the hashes and names, not the bytes.
func Digest(s Session) ([sha256.Size]byte, error) {
	h := sha256.New()
	w := &Writer{w: h, withoutBytes: true}
	if err := w.writeSession(s); err != nil {
		return [sha256.Size]byte{}, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}
