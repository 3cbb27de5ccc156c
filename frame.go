package loquat

import "sync/atomic"

// maxFrameBody is the size of the largest body that Frame copies. Larger events are written
// from their body, because a second copy would cost more memory than the encoding costs time.
const maxFrameBody = 16 << 10

// The parts of a frame around the event's JSON.
const (
	frameID   = "id: "
	frameData = "\ndata: "
	frameEnd  = "\n\n"
)

// frame is an event as a Server-Sent Event. It is made by the first reader that needs it.
type frame struct{ bytes atomic.Pointer[[]byte] }

// ShareFrames makes all copies of each record share one frame. The caller must be the only
// user of the records.
func ShareFrames(records []Record) {
	frames := make([]frame, len(records))
	for i := range records {
		records[i].frame = &frames[i]
	}
}

// Frame returns the event, without its session, as a Server-Sent Event with the event's id. All
// readers share the bytes, so they must not be changed. The result is nil if the event is
// large or its frame is not shared. Then WriteJSON writes the event without a copy.
func (r *Record) Frame() []byte {
	if r.frame == nil || len(r.Body) > maxFrameBody {
		return nil
	}
	if b := r.frame.bytes.Load(); b != nil {
		return *b
	}
	b := r.appendFrame(make([]byte, 0, len(frameID)+EventIDWidth+len(frameData)+len(`{"event_id":"",`)+EventIDWidth+len(r.Body)+len(frameEnd)))
	r.frame.bytes.Store(&b) // a reader that did the same meanwhile has the same bytes
	return b
}

func (r *Record) appendFrame(dst []byte) []byte {
	dst = append(r.ID.append(append(dst, frameID...)), frameData...)
	return append(r.AppendJSON(dst, nil), frameEnd...)
}

// sharedJSON returns the part of Frame that is the event's JSON.
func (r *Record) sharedJSON() []byte {
	b := r.Frame()
	if b == nil {
		return nil
	}
	return b[len(frameID)+EventIDWidth+len(frameData) : len(b)-len(frameEnd)]
}
