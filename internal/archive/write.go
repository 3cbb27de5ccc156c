package archive

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"loquat"
)

// Writer writes an archive. Its memory does not grow with the number of sessions.
type Writer struct {
	w            io.Writer
	begun        bool
	withoutBytes bool // of images
}

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Write adds a session. After an error the archive cannot be continued.
func (w *Writer) Write(s Session) error {
	if err := w.separate(); err != nil {
		return err
	}
	return w.writeSession(s)
}

// WriteRaw adds a session that is already in its form in an archive.
func (w *Writer) WriteRaw(session io.Reader) error {
	if err := w.separate(); err != nil {
		return err
	}
	_, err := io.Copy(w.w, session)
	return err
}

// separate writes what comes before a session.
func (w *Writer) separate() error {
	before := ",\n"
	if !w.begun {
		before = fmt.Sprintf(`{"format":%q,"version":%d,"sessions":[`+"\n", format, version)
	}
	w.begun = true
	_, err := io.WriteString(w.w, before)
	return err
}

// Close writes the end of the archive. It does not close the io.Writer.
func (w *Writer) Close() error {
	end := "\n]}\n"
	if !w.begun {
		end = fmt.Sprintf(`{"format":%q,"version":%d,"sessions":[]}`+"\n", format, version)
	}
	_, err := io.WriteString(w.w, end)
	return err
}

// writeSession writes one session, one message or image at a time.
func (w *Writer) writeSession(s Session) error {
	dst := loquat.AppendString([]byte(`{"session_id":`), s.SessionID)
	dst = loquat.AppendString(append(dst, `,"agent_id":`...), s.AgentID)
	if s.Origin.SourceSessionID != "" {
		dst = loquat.AppendString(append(dst, `,"source_session_id":`...), s.Origin.SourceSessionID)
	}
	if s.Origin.SourceIndex != nil {
		dst = strconv.AppendInt(append(dst, `,"source_index":`...), int64(*s.Origin.SourceIndex), 10)
	}
	dst = appendTime(append(dst, `,"created_at":`...), s.CreatedAt)
	dst = appendTime(append(dst, `,"updated_at":`...), s.UpdatedAt)
	metadata, err := appendObject(append(dst, `,"metadata":`...), s.Metadata)
	if err != nil {
		return fmt.Errorf("metadata of session %s: %w", s.SessionID, err)
	}
	if _, err := w.w.Write(append(metadata, `,"images":[`...)); err != nil {
		return err
	}
	for i, image := range s.Images {
		if err := w.writeImage(i, image); err != nil {
			return fmt.Errorf("image %s of session %s: %w", image.AssetID, s.SessionID, err)
		}
	}
	if _, err := io.WriteString(w.w, `],"messages":[`); err != nil {
		return err
	}
	if err := w.writeMessages(s.Messages); err != nil {
		return fmt.Errorf("session %s: %w", s.SessionID, err)
	}
	if _, err := io.WriteString(w.w, "]"); err != nil {
		return err
	}
	for i, a := range s.Alternatives {
		if err := w.writeAlternative(i, a); err != nil {
			return fmt.Errorf("alternative %d of session %s: %w", i, s.SessionID, err)
		}
	}
	end := "}"
	if len(s.Alternatives) > 0 {
		end = "]}"
	}
	_, err = io.WriteString(w.w, end)
	return err
}

func (w *Writer) writeMessages(messages []loquat.Message) error {
	var buf []byte
	for i, m := range messages {
		var err error
		if buf, err = appendMessage(buf[:0], i, m); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		if _, err := w.w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

func (w *Writer) writeAlternative(i int, a loquat.AlternativeNode) error {
	before := `,`
	if i == 0 {
		before = `,"alternatives":[`
	}
	dst := strconv.AppendInt([]byte(before+`{"index":`), int64(a.Index), 10)
	if a.Within != loquat.OfSession {
		dst = strconv.AppendInt(append(dst, `,"within":`...), int64(a.Within), 10)
	}
	dst = appendTime(append(dst, `,"created_at":`...), a.CreatedAt)
	if a.InPlace {
		_, err := w.w.Write(append(dst, `,"in_place":true}`...))
		return err
	}
	if _, err := w.w.Write(append(dst, `,"messages":[`...)); err != nil {
		return err
	}
	if err := w.writeMessages(a.Messages); err != nil {
		return err
	}
	_, err := io.WriteString(w.w, "]}")
	return err
}

func (w *Writer) writeImage(i int, image Image) error {
	dst := []byte{}
	if i > 0 {
		dst = append(dst, ',')
	}
	dst = loquat.AppendString(append(dst, `{"asset_id":`...), image.AssetID)
	dst = loquat.AppendString(append(dst, `,"media_type":`...), image.MediaType)
	dst = strconv.AppendInt(append(dst, `,"size":`...), image.Size, 10)
	dst = loquat.AppendString(append(dst, `,"sha256":`...), image.SHA256)
	if image.Name != "" {
		dst = loquat.AppendString(append(dst, `,"name":`...), image.Name)
	}
	dst = append(dst, `,"data":"`...)
	if w.withoutBytes {
		_, err := w.w.Write(append(dst, `"}`...))
		return err
	}
	content, err := image.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	if _, err := w.w.Write(dst); err != nil {
		return err
	}
	encoder := base64.NewEncoder(base64.StdEncoding, w.w)
	if n, err := io.Copy(encoder, content); err != nil {
		return err
	} else if n != image.Size {
		return fmt.Errorf("has %d bytes and not %d", n, image.Size)
	}
	if err := encoder.Close(); err != nil {
		return err
	}
	_, err = io.WriteString(w.w, `"}`)
	return err
}

func appendMessage(dst []byte, i int, m loquat.Message) (_ []byte, err error) {
	if i > 0 {
		dst = append(dst, ',')
	}
	dst = loquat.AppendString(append(dst, `{"id":`...), m.ID)
	dst = loquat.AppendString(append(dst, `,"role":`...), m.Role)
	dst = loquat.AppendString(append(dst, `,"content":`...), m.Content)
	if len(m.Metadata) > 0 {
		if dst, err = appendObject(append(dst, `,"metadata":`...), m.Metadata); err != nil {
			return nil, err
		}
	}
	return append(appendTime(append(dst, `,"created_at":`...), m.CreatedAt), '}'), nil
}

func appendTime(dst []byte, t time.Time) []byte {
	return append(t.UTC().AppendFormat(append(dst, '"'), time.RFC3339Nano), '"')
}

// appendObject appends an object with sorted keys. Its values have their one form.
func appendObject(dst []byte, o loquat.Object) (_ []byte, err error) {
	dst = append(dst, '{')
	for i, key := range slices.Sorted(maps.Keys(o)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(loquat.AppendString(dst, key), ':')
		if dst, err = appendRaw(dst, o[key]); err != nil {
			return nil, fmt.Errorf("the value at %q: %w", loquat.Clip(key, loquat.Excerpt), err)
		}
	}
	return append(dst, '}'), nil
}

// appendRaw appends a value on one line, with the fewest escapes in its strings. Numbers and the
// order of keys stay as they are.
func appendRaw(dst []byte, raw json.RawMessage) ([]byte, error) {
	if len(raw) == 0 {
		return append(dst, "null"...), nil
	}
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Format(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("is not valid JSON: %w", err)
	}
	return append(dst, v...), nil
}
