package feed

import (
	"bytes"
	"context"
	"io"
	"slices"

	"loquat"
)

// WriteEvent writes the JSON of an event as clients read it. If the event carries a session,
// the JSON has the session as it was at the event's revision. The bodies of events and the
// messages of sessions are written from where they are kept, without a copy for each client.
//
// An error that is not of w comes before the first byte.
func (f *Feed) WriteEvent(ctx context.Context, w io.Writer, rec loquat.Record) error {
	session, err := f.sessionOf(ctx, rec)
	if err != nil {
		return err
	}
	return rec.WriteJSON(w, session.writer())
}

// AppendEvent appends the JSON that WriteEvent writes. On an error it returns dst.
func (f *Feed) AppendEvent(ctx context.Context, dst []byte, rec loquat.Record) ([]byte, error) {
	session, err := f.sessionOf(ctx, rec)
	if err != nil {
		return dst, err
	}
	const idAndSeparators = 64
	if n := session.size(); n > 0 { // a session may be large: grow once
		dst = slices.Grow(dst, idAndSeparators+len(rec.Body)+n)
	}
	buf := bytes.NewBuffer(dst)
	_ = rec.WriteJSON(buf, session.writer()) // a buffer does not fail
	return buf.Bytes(), nil
}

// sessionOf returns the JSON of the session that an event carries. It is empty if the event
// carries no session, or if the session was deleted since: then the client gets
// session_deleted soon.
func (f *Feed) sessionOf(ctx context.Context, rec loquat.Record) (sessionJSON, error) {
	if rec.Rev == 0 {
		return sessionJSON{}, nil
	}
	session, err := f.sessions.load(ctx, rec)
	if loquat.CodeOf(err) == loquat.CodeNotFound {
		return sessionJSON{}, nil
	}
	if err != nil {
		return sessionJSON{}, err
	}
	return session.encode(rec, f.store.VisibleMetadata)
}
