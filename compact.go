package loquat

import "encoding/json"

// Compact shortens a window of the log without changing the state that the window folds
// to. It drops a partial if a final or the end of its request follows, and a tool_partial
// if the results of its tool call or the end of its request follow. Partials of one
// request are merged if no other event of that request is left between them. The merged
// partial has the place and the id of the last one.
//
// The last record of a window always stays, because its id is the next cursor. Compact
// changes neither the window nor any Body. If it has nothing to drop or merge, it returns
// the window itself. Compact is idempotent and takes linear time.
func Compact(window []Record) []Record { return compact(window, false) }

// CompactForPush is Compact for a window that is pushed event by event, where the
// connection may break after any event. It merges only partials with no event of any
// request left between them. Otherwise a reader could receive an event between two merged
// partials, resume after that event, and never receive the text of the first partial.
func CompactForPush(window []Record) []Record { return compact(window, true) }

func compact(window []Record, onlyNeighbours bool) []Record {
	partials, toolPartials := countIncrements(window)
	if len(window) < 2 || partials+toolPartials == 0 {
		return window
	}
	dropped := findSuperseded(window, toolPartials > 0)
	merged := mergePartials(window, dropped, onlyNeighbours)
	out := make([]Record, 0, len(window))
	for i, rec := range window {
		if dropped[i] {
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

// findSuperseded marks the increments that a later event of the window supersedes. It
// reads the window backwards. Without hasToolPartials it need not decode tool_results.
func findSuperseded(window []Record, hasToolPartials bool) []bool {
	type call struct{ request, id string }
	superseded := make([]bool, len(window))
	hasFinal := map[string]bool{} // requests with a final or their end later in the window
	hasEnd := map[string]bool{}
	hasResults := map[call]bool{}
	for i := len(window) - 1; i >= 0; i-- {
		rec := &window[i]
		switch rec.Type {
		case Final:
			hasFinal[rec.RequestID] = true
		case RequestCompleted:
			hasFinal[rec.RequestID], hasEnd[rec.RequestID] = true, true
		case ToolResults:
			if hasToolPartials {
				for _, id := range rec.decodeResultCallIDs() {
					hasResults[call{rec.RequestID, id}] = true
				}
			}
		case Partial:
			superseded[i] = hasFinal[rec.RequestID]
		case ToolPartial:
			superseded[i] = hasEnd[rec.RequestID] || len(hasResults) > 0 && hasResults[call{rec.RequestID, rec.decodeToolCallID()}]
		}
	}
	return superseded
}

// decodeResultCallIDs returns the tool_call_ids of the messages in a tool_results.
func (r *Record) decodeResultCallIDs() []string {
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

// decodeToolCallID returns the tool_call_id of a tool_partial.
func (r *Record) decodeToolCallID() string {
	var body struct {
		ToolCallID string `json:"tool_call_id"`
	}
	if json.Unmarshal(r.Body, &body) != nil {
		return ""
	}
	return body.ToolCallID
}

// decodeDelta returns the message of a partial. ok is false if it cannot be decoded.
func (r *Record) decodeDelta() (d Delta, ok bool) {
	var body struct {
		Message *Delta `json:"message"`
	}
	if json.Unmarshal(r.Body, &body) != nil || body.Message == nil {
		return Delta{}, false
	}
	return *body.Message, true
}

// partialRun is a sequence of partials of one request that are merged into one.
type partialRun struct {
	last  int // index in the window
	count int
	sum   mergedDelta // filled when the run grows, which most runs never do
}

// mergePartials merges the partials that are not dropped yet. It marks all but the last
// partial of each run as dropped, and returns by index the records that replace the last
// ones. With onlyNeighbours, any event that is left between two partials separates them.
func mergePartials(window []Record, dropped []bool, onlyNeighbours bool) map[int]Record {
	open := map[string]*partialRun{}
	merged := map[int]Record{}
	for i := range window {
		rec := &window[i]
		if dropped[i] {
			continue
		}
		if onlyNeighbours {
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
			dropped[r.last] = true
			r.last = i
		default:
			r.close(window, merged)
			open[rec.RequestID] = &partialRun{last: i, count: 1}
		}
	}
	for _, r := range open {
		r.close(window, merged)
	}
	return merged
}

// extend merges the partial at i into the run. It returns false if the partial cannot be
// decoded, or if merging it could change the folded state.
func (r *partialRun) extend(window []Record, i int) bool {
	if r.count == 1 {
		first, ok := window[r.last].decodeDelta()
		if !ok {
			return false
		}
		r.sum.add(first)
	}
	next, ok := window[i].decodeDelta()
	if !ok || !r.sum.canAdd(next) {
		return false
	}
	r.sum.add(next)
	r.count++
	return true
}

// close puts the merged partial of the run into merged. A nil run, and a run of one
// partial, have nothing to merge.
func (r *partialRun) close(window []Record, merged map[int]Record) {
	if r == nil || r.count == 1 {
		return
	}
	rec := window[r.last]
	d := r.sum.delta()
	encoded, err := Event{Type: Partial, SessionID: rec.SessionID, RequestID: rec.RequestID, Message: &d}.Encode()
	if err != nil {
		panic("loquat: a merged partial cannot be encoded: " + err.Error()) // cannot happen: its values were decoded from JSON
	}
	rec.Body, rec.frame = encoded.Body, nil
	merged[r.last] = rec
}
