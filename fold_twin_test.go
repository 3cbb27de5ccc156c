package loquat

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// foldTwin is a log of one or more sessions, in windows. The fold in TypeScript has to come to the
// same state as Fold after each of them.
type foldTwin struct {
	Snapshot Snapshot         `json:"snapshot"`
	Windows  []foldTwinWindow `json:"windows"`
}

type foldTwinWindow struct {
	Plain     []json.RawMessage `json:"plain"`
	Compacted []json.RawMessage `json:"compacted"`
	State     foldTwinState     `json:"state"`
}

type foldTwinState struct {
	Messages []Message      `json:"messages"`
	Draft    *foldTwinDraft `json:"draft"`
	AgentID  string         `json:"agent_id"`
	Metadata Object         `json:"metadata"`
	Deleted  bool           `json:"deleted"`
	Cursor   EventID        `json:"cursor"`
}

type foldTwinDraft struct {
	RequestID string `json:"requestId"`
	Content   string `json:"content"`
	Metadata  Object `json:"metadata"`
}

// The fold of clients/typescript and Fold agree on random logs, plain and compacted.
func TestFoldTwins(t *testing.T) {
	client := filepath.Join("clients", "typescript")
	if _, err := os.Stat(filepath.Join("node_modules", "tsx")); err != nil {
		t.Skip("the packages of npm are not installed: npm ci")
	}
	var twins []foldTwin
	rapid.Check(t, func(t *rapid.T) {
		log := drawLog(t, rapid.IntRange(1, 2).Draw(t, "sessions"))
		twin := foldTwin{Snapshot: emptySnapshot("s0")}
		twin.Snapshot.Metadata, twin.Snapshot.Messages = Object{}, []Message{}
		fold := NewFold(twin.Snapshot)
		for _, window := range drawWindows(t, log) {
			applyAll(t, fold, window)
			twin.Windows = append(twin.Windows, foldTwinWindow{bodiesOf(t, window), bodiesOf(t, Compact(window)), twinStateOf(fold)})
		}
		twins = append(twins, twin)
	})
	input, err := json.Marshal(twins)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "--import", "tsx", filepath.Join("test", "fold-twins.ts"))
	cmd.Dir, cmd.Stdin = client, bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}

func bodiesOf(t interface{ Fatal(...any) }, window []Record) []json.RawMessage {
	out := make([]json.RawMessage, len(window))
	for i, rec := range window {
		e, err := rec.Decode()
		if err != nil {
			t.Fatal(err)
		}
		if out[i], err = json.Marshal(e); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func twinStateOf(f *Fold) foldTwinState {
	s := foldTwinState{Messages: f.Messages(), AgentID: f.AgentID(), Metadata: f.Metadata(), Deleted: f.Deleted(), Cursor: f.Cursor()}
	if d := f.Draft(); d != nil {
		s.Draft = &foldTwinDraft{d.RequestID, d.Content, d.Metadata}
	}
	return s
}
