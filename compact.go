package loquat

import "encoding/json"

// Compact thins a window of the log without changing what it folds to. A partial
// goes when a final or the end of its request follows, a tool_partial when the
// results that hold its call or the end of its request follow. Partials of one
// request with nothing else of that request left between them become one, in the
// place and with the id of the later.
//
// The last record of a window always stays, so that its id is the next position.
// Compact changes neither the window nor a Body; when there is nothing to do it
// returns the window itself. It is idempotent and takes one look at each record.
func Compact(window []Record) []Record { return compact(window, false) }

// CompactForPush is Compact for a window that goes out event by event and may be cut
// off anywhere. It joins only partials that have nothing at all left between them: a
// reader that got an event in between would resume after it, and what was joined with a
// later partial would never come.
func CompactForPush(window []Record) []Record { return compact(window, true) }

func compact(window []Record, push bool) []Record {
	partials, toolPartials := countIncrements(window)
	if len(window) < 2 || partials+toolPartials == 0 {
		return window
	}
	gone := superseded(window, toolPartials > 0)
	merged := mergePartials(window, gone, push)
	out := make([]Record, 0, len(window))
	for i, rec := range window {
		if gone[i] {
			continue
		}
		if m, ok := merged[i]; ok {
			rec = m
		}
		out = append(out, rec)
	}
	return out
}

func countIncrements(window []Record) (partials, toolPartials int) {
	for i := range window {
		switch window[i].Type {
		case Partial:
			partials++
		case ToolPartial:
			toolPartials++
		}
	}
	return partials, toolPartials
}

// superseded marks the increments whose outcome follows them, reading backwards.
func superseded(window []Record, tools bool) []bool {
	type call struct{ request, id string }
	gone := make([]bool, len(window))
	spoken := map[string]bool{} // requests with a final or their end further on
	ended := map[string]bool{}
	answered := map[call]bool{}
	for i := len(window) - 1; i >= 0; i-- {
		rec := &window[i]
		switch rec.Type {
		case Final:
			spoken[rec.RequestID] = true
		case RequestCompleted:
			spoken[rec.RequestID], ended[rec.RequestID] = true, true
		case ToolResults:
			if tools {
				for _, id := range rec.answeredCalls() {
					answered[call{rec.RequestID, id}] = true
				}
			}
		case Partial:
			gone[i] = spoken[rec.RequestID]
		case ToolPartial:
			gone[i] = ended[rec.RequestID] || len(answered) > 0 && answered[call{rec.RequestID, rec.toolCallID()}]
		}
	}
	return gone
}

// answeredCalls returns the tool_call_ids that a tool_results holds.
func (r *Record) answeredCalls() []string {
	var body struct {
		Messages []struct {
			Metadata Object `json:"metadata"`
		} `json:"messages"`
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return nil
	}
	var ids []string
	for _, m := range body.Messages {
		if id := m.Metadata.String(MetaToolCallID); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}

// toolCallID returns the call that a tool_partial belongs to.
func (r *Record) toolCallID() string {
	var body struct {
		ToolCallID string `json:"tool_call_id"`
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return ""
	}
	return body.ToolCallID
}

// increment returns what a partial adds; ok is false when it cannot be read.
func (r *Record) increment() (d Delta, ok bool) {
	var body struct {
		Message *Delta `json:"message"`
	}
	if json.Unmarshal(r.Body, &body) != nil || body.Message == nil {
		return Delta{}, false
	}
	return *body.Message, true
}

// run is a row of partials of one request that become one.
type run struct {
	last   int // index in the window
	count  int
	joined increments // empty while count is 1: most runs never grow
}

// mergePartials joins what superseded has left. It marks all but the last partial
// of each run as gone, and returns what takes the place of the last. With neighbours,
// whatever is left between two partials keeps them apart.
func mergePartials(window []Record, gone []bool, neighbours bool) map[int]Record {
	open := map[string]*run{}
	merged := map[int]Record{}
	for i := range window {
		rec := &window[i]
		if gone[i] {
			continue
		}
		if neighbours {
			for id, r := range open {
				if id != rec.RequestID {
					r.close(window, merged)
					delete(open, id)
				}
			}
		}
		if rec.RequestID == "" {
			continue
		}
		r := open[rec.RequestID]
		switch {
		case rec.Type != Partial:
			r.close(window, merged)
			delete(open, rec.RequestID)
		case r != nil && r.extend(window, i):
			gone[r.last] = true
			r.last = i
		default:
			r.close(window, merged)
			open[rec.RequestID] = &run{last: i, count: 1}
		}
	}
	for _, r := range open {
		r.close(window, merged)
	}
	return merged
}

// extend adds the partial at i, unless it cannot be joined without changing what
// the two fold to. Then it begins a run of its own.
func (r *run) extend(window []Record, i int) bool {
	if r.count == 1 {
		first, ok := window[r.last].increment()
		if !ok {
			return false
		}
		r.joined = increments{}
		r.joined.add(first)
	}
	next, ok := window[i].increment()
	if !ok || !r.joined.accepts(next) {
		return false
	}
	r.joined.add(next)
	r.count++
	return true
}

func (r *run) close(window []Record, merged map[int]Record) {
	if r == nil || r.count == 1 {
		return
	}
	rec := window[r.last]
	d := r.joined.delta()
	whole, err := Event{Type: Partial, SessionID: rec.SessionID, RequestID: rec.RequestID, Message: &d}.Encode()
	if err != nil {
		panic("loquat: a joined partial cannot be encoded: " + err.Error()) // its parts were decoded from JSON
	}
	rec.Body = whole.Body
	merged[r.last] = rec
}
