package loquat

import (
	"bytes"
	"strings"
	"testing"
)

func sharedPartials(t *testing.T, texts ...string) []Record {
	t.Helper()
	var out []Record
	for i, text := range texts {
		rec, err := Event{Type: Partial, SessionID: "s", RequestID: "q", Message: &Delta{Role: RoleAssistant, Content: text}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		rec.ID = EventID(i + 1)
		out = append(out, rec)
	}
	ShareFrames(out)
	return out
}

// A frame is the event in the form that clients read, made once for all copies of the record.
func TestFrame(t *testing.T) {
	around := len(sharedPartials(t, "")[0].Body)
	for _, text := range []string{"hello", strings.Repeat("x", maxFrameBody-around)} {
		checkFrame(t, sharedPartials(t, text)[0])
	}
	large := sharedPartials(t, strings.Repeat("x", maxFrameBody-around+1))[0]
	unshared := Record{ID: 1, Body: []byte("{}")}
	for _, c := range []*Record{&large, &unshared} {
		var out bytes.Buffer
		if err := c.WriteJSON(&out, nil); err != nil || c.Frame() != nil || out.String() != string(c.AppendJSON(nil, nil)) {
			t.Errorf("an event without a frame: %d bytes, %v, %v", out.Len(), c.Frame() != nil, err)
		}
	}
}

// checkFrame checks the frame of an event that has one. With it the event is written at once.
func checkFrame(t *testing.T, original Record) {
	t.Helper()
	earlier, other := original, original
	frame := original.Frame()
	want := "id: 0000000000000001\ndata: " + string(original.AppendJSON(nil, nil)) + "\n\n"
	if string(frame) != want {
		t.Fatalf("%.200q, want %.200q", frame, want)
	}
	for _, c := range []*Record{&earlier, &other} {
		if &c.Frame()[0] != &frame[0] {
			t.Error("a copy of the record has another frame")
		}
		out := short{left: 1}
		if err := c.WriteJSON(&out, nil); err != nil || out.String() != string(c.AppendJSON(nil, nil)) {
			t.Errorf("%.200s, %v", &out, err)
		}
	}
}

// A merged partial does not show the frame of one of the partials that it was made of.
func TestFrameOfMergedPartials(t *testing.T) {
	for name, compact := range map[string]func([]Record) []Record{"poll": Compact, "push": CompactForPush} {
		window := sharedPartials(t, "one ", "two")
		for i := range window {
			window[i].Frame()
		}
		merged := compact(window)
		var out bytes.Buffer
		if err := merged[0].WriteJSON(&out, nil); err != nil || len(merged) != 1 || !strings.Contains(out.String(), "one two") || merged[0].Frame() != nil {
			t.Errorf("%s: %s, %v", name, &out, err)
		}
		if !strings.Contains(string(window[1].Frame()), `"two"`) {
			t.Errorf("%s: the window was changed", name)
		}
	}
}
