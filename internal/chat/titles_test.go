package chat_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"loquat"
	"loquat/internal/chat"
)

const titleConfig = `{
	"providers": {"main": {"provider": "fake", "model": "m1", "tools": [{"type": "function", "function": {"name": "t"}}]}},
	"agents": {"default": {"provider": "main", "title": {"model": "small", "prompt": "Name it."}}, "plain": {"provider": "main"}, "brief": {"provider": "main", "title": {}}}
}`

// newTitleRig returns a rig whose agent `default` has titles by a model.
func newTitleRig(t *testing.T) *rig {
	r := newRig(t)
	r.load(titleConfig)
	return r
}

func says(text string) phase {
	return phase{chunks: []loquat.Chunk{{Text: text}}, reply: loquat.Reply{Content: text}}
}

// exchange sends a message and waits for the end of the reply.
func (r *rig) exchange(session, message string) {
	r.t.Helper()
	if q := r.ended(r.send(session, loquat.Send{Content: &message}).RequestID); q.Status != loquat.StatusCompleted {
		r.t.Fatalf("the request is %s", q.Status)
	}
}

func (r *rig) title(session string) string {
	return r.snapshot(session).Metadata.String(loquat.MetaTitle)
}

// settles waits until no request runs and no title is being written.
func (r *rig) settles() {
	r.t.Helper()
	r.eventually("the titles are written", func() bool {
		return r.Requests.Running() == 0 && chat.TitlesWaiting(r.Service) == 0
	})
}

func (r *rig) eventually(what string, done func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("%s: it did not happen", what)
		}
	}
}

// forTitles returns the calls for titles.
func (r *rig) forTitles() []loquat.LLMRequest {
	return slices.DeleteFunc(slices.Clone(r.provider.seen()), func(call loquat.LLMRequest) bool { return call.RequestID != "" })
}

// beginTitle makes a session and waits until the model is asked for its title, which is the nth call
// of this kind.
func (r *rig) beginTitle(answer phase, nth int) (session string) {
	r.t.Helper()
	r.provider.then(says("ok"))
	r.provider.then(answer)
	session = r.create(loquat.NewSession{}).SessionID
	r.exchange(session, "hello")
	r.eventually("the model is asked for a title", func() bool { return len(r.forTitles()) == nth })
	return session
}

func TestTitleByModel(t *testing.T) {
	r := newTitleRig(t)
	r.provider.then(says("It is the capital of Norway."))
	r.provider.then(says("\n\"Oslo, briefly\"\n"))
	s := r.create(loquat.NewSession{}).SessionID
	r.exchange(s, "  Where is Oslo?\nI forgot.")
	r.settles()
	if got := r.title(s); got != "Oslo, briefly" {
		t.Fatalf("the title is %q", got)
	}
	call := r.forTitles()[0]
	if call.Config.String("model") != "small" || call.Config["tools"] != nil || len(call.Messages) != 2 {
		t.Errorf("the call for the title: %+v", call)
	}
	if m := call.Messages; m[0].Content != "Name it." || m[1].Content != "[user]\nWhere is Oslo?\nI forgot.\n\n[assistant]\nIt is the capital of Norway.\n\n" {
		t.Errorf("the model reads %q, %q", m[0].Content, m[1].Content)
	}
	r.exchange(s, "And Bergen?")
	r.settles()
	if n := len(r.forTitles()); n != 1 || r.title(s) != "Oslo, briefly" {
		t.Errorf("%d calls for titles, the title is %q", n, r.title(s))
	}
}

// The setting may leave everything to the server.
func TestTitleByDefaults(t *testing.T) {
	r := newTitleRig(t)
	r.provider.then(says("ok"))
	r.provider.then(says("Greeting"))
	s := r.create(loquat.NewSession{AgentID: "brief"}).SessionID
	r.exchange(s, "hello")
	r.settles()
	if got := r.title(s); got != "Greeting" {
		t.Fatalf("the title is %q", got)
	}
	if call := r.forTitles()[0]; call.Config.String("model") != "m1" || !strings.HasPrefix(call.Messages[0].Content, "You name conversations.") {
		t.Errorf("the call for the title: %+v", call)
	}
}

// A call for a title delays nothing, and a title that somebody has set meanwhile stays.
func TestTitleSetMeanwhile(t *testing.T) {
	r := newTitleRig(t)
	gate := make(chan struct{})
	s := r.beginTitle(phase{reply: loquat.Reply{Content: "of the model"}, gate: gate}, 1)
	r.exchange(s, "another") // while the model writes the title
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s, loquat.SessionPatch{Metadata: loquat.Object{}.Set(loquat.MetaTitle, "mine")}); err != nil {
		t.Fatal(err)
	}
	close(gate)
	r.settles()
	if got := r.title(s); got != "mine" {
		t.Errorf("the title is %q", got)
	}
}

// A session that is deleted meanwhile, and the end of the service, end the writing of a title silently.
func TestTitleOfWhatEnds(t *testing.T) {
	r := newTitleRig(t)
	gate := make(chan struct{})
	s := r.beginTitle(phase{reply: loquat.Reply{Content: "too late"}, gate: gate}, 1)
	if err := r.DeleteSession(t.Context(), chat.Call{}, s); err != nil {
		t.Fatal(err)
	}
	close(gate)
	r.settles()

	r.beginTitle(phase{hang: true}, 2)
	r.Stop(t.Context())
	if log := r.said.String(); strings.Contains(log, "keeps the title") {
		t.Errorf("the log has\n%s", log)
	}
}

// Sessions that need no title of a model, and models that write none.
func TestTitleNotWritten(t *testing.T) {
	down := phase{err: errors.New("down")}
	for name, c := range map[string]struct {
		session loquat.NewSession
		answers []phase // to the calls for titles; no other is made
		title   string
	}{
		"agent without the setting": {session: loquat.NewSession{AgentID: "plain"}, title: "hello"},
		"title of a person":         {session: loquat.NewSession{Metadata: loquat.Object{}.Set(loquat.MetaTitle, "mine")}, title: "mine"},
		"three failures":            {answers: []phase{down, down, down}, title: "hello"},
		"a failure":                 {answers: []phase{down, says("better")}, title: "better"},
		"no titles":                 {answers: []phase{{reply: loquat.Reply{Content: "A title that", FinishReason: "length"}}, says(""), says(" \n")}, title: "hello"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTitleRig(t)
			s := r.create(c.session).SessionID
			for i, message := range []string{"hello", "two", "three", "four"} {
				r.provider.then(says("ok"))
				if i < len(c.answers) {
					r.provider.then(c.answers[i])
				}
				r.exchange(s, message)
				r.settles()
			}
			if n := len(r.forTitles()); n != len(c.answers) || r.title(s) != c.title {
				t.Errorf("%d calls for titles, want %d; the title is %q, want %q", n, len(c.answers), r.title(s), c.title)
			}
		})
	}
}

func TestTitleInReply(t *testing.T) {
	for reply, want := range map[string]string{
		"Oslo":                             "Oslo",
		"  \n Oslo \nand more":             "Oslo",
		`"Oslo"`:                           "Oslo",
		"# **Oslo**":                       "Oslo",
		"Learning C#":                      "Learning C#",
		"“Oslo”":                           "Oslo",
		"「奥斯陆」":                            "奥斯陆",
		`The word "now"`:                   `The word "now"`,
		"<think>\nWell…\n</think>\n\nOslo": "Oslo",
		`"`:                                `"`,
		"":                                 "",
		strings.Repeat("long ", 100):       strings.Repeat("long ", 15) + "long…",
	} {
		if got := chat.TitleIn(loquat.Reply{Content: reply}); got != want {
			t.Errorf("%q: %q, want %q", reply, got, want)
		}
	}
}

// A title that comes from a message goes with the message, also at once with the next one. One that a client has set
// stays.
func TestTitleOfAMessageThatIsGone(t *testing.T) {
	r := newTitleRig(t)
	r.provider.then(phase{hang: true})
	s := r.create(loquat.NewSession{AgentID: "plain"}).SessionID
	r.send(s, loquat.Send{Content: text("my password is hunter2")})
	r.eventually("the call of the model", func() bool { return len(r.provider.seen()) == 1 })
	r.ended(r.send(s, loquat.Send{Content: text("How do I bake bread?"), OnBusy: loquat.BusyRollback}).RequestID)
	if got := r.title(s); got != "How do I bake bread?" {
		t.Errorf("after the first message was rolled back, the title is %q", got)
	}
	r.ended(r.send(s, loquat.Send{Content: text("And cake?"), DeleteFrom: new(0)}).RequestID)
	if got := r.title(s); got != "And cake?" {
		t.Errorf("after the first message was replaced, the title is %q", got)
	}
	r.exchange(s, "More.")
	r.ended(r.send(s, loquat.Send{Content: text("Less."), DeleteFrom: new(2)}).RequestID)
	if got := r.title(s); got != "And cake?" {
		t.Errorf("after another message was replaced, the title is %q", got)
	}
	if _, err := r.UpdateSession(t.Context(), chat.Call{}, s, loquat.SessionPatch{Metadata: loquat.Object{}.Set("title", "Mine")}); err != nil {
		t.Fatal(err)
	}
	r.ended(r.send(s, loquat.Send{Content: text("Again."), DeleteFrom: new(0)}).RequestID)
	if got := r.title(s); got != "Mine" {
		t.Errorf("the title of the client is %q", got)
	}
}
