package bridge

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"loquat"
	"loquat/internal/phx"
)

// expect reads pushes with these contents, and no others.
func (p *phone) expect(contents ...string) {
	p.t.Helper()
	for _, want := range contents {
		if got := p.next(); got.event != eventSession || got.content() != want {
			p.t.Fatalf("%s %s, want %q", got.event, got.payload, want)
		}
	}
}

// A token of a user hears of the user's sessions: of the past, live, and in a bridge that stands alone.
func TestUsers(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(map[bool]string{false: "in serve", true: "standing alone"}[alone], func(t *testing.T) {
			var log *memLog
			var url string
			if alone {
				o := newRemoteServer()
				log = o.log
				log.of("ann", "a", "one")
				log.of("bob", "b", "not for ann")
				_, url = newBridge(t, History{Events: 2}) // the past is read from the server
				f := o.forward(t, url, "server-token")
				until(t, "the server is connected", f.Connected)
			} else {
				r := newRig(t, phx.Limits{}, nil)
				log, url = r.log, r.url
				log.of("ann", "a", "one")
				log.of("bob", "b", "not for ann")
			}
			log.of("", "c", "of nobody")
			log.of("ann", "d", "two")
			log.of("bob", "b", "not for ann")
			all, ann := call(t, url), call(t, url)
			for _, p := range []*phone{all, ann} {
				if _, reason := p.join(rigTopic, map[string]any{"token": map[*phone]string{all: "good", ann: "of-ann"}[p], "since_id": "0000000000000000"}); reason != "" {
					t.Fatal(reason)
				}
			}
			ann.expect("one", "two")
			all.expect("one", "not for ann", "of nobody", "two", "not for ann")
			log.of("ann", "a", "three")
			log.of("bob", "b", "not for ann")
			log.of("ann", "a", "four")
			ann.expect("three", "four")
			all.expect("three", "not for ann", "four")
		})
	}
}

// A bridge that stands alone ends the sockets of a user's token when the token ends: also if that happened
// while the server was not connected.
func TestTokenOfUserEnds(t *testing.T) {
	o := newRemoteServer()
	o.door.tokens["of-bob"] = Sight{User: "bob"}
	h, url := newBridge(t, History{})
	f := o.forward(t, url, "server-token")
	until(t, "the server is connected", f.Connected)
	ann, again, bob := call(t, url), call(t, url), call(t, url)
	for p, token := range map[*phone]string{ann: "of-ann", again: "of-ann", bob: "of-bob"} {
		if _, reason := p.join(rigTopic, map[string]any{"token": token}); reason != "" {
			t.Fatal(reason)
		}
	}
	o.door.revoke("of-ann")
	ann.gone()
	again.gone()
	if _, reason := call(t, url).join(rigTopic, map[string]any{"token": "of-ann"}); reason != reasonUnauthorized {
		t.Errorf("a revoked token: %q", reason)
	}
	log := func(content string) loquat.EventID { return o.log.of("bob", "b", content) }
	log("heard")
	bob.expect("heard")

	f.Close()
	if _, reason := call(t, url).join(rigTopic, map[string]any{"token": "of-ann"}); reason != reasonUnavailable {
		t.Errorf("an unknown token without the server: %q", reason)
	}
	f = o.forward(t, url, "server-token")
	until(t, "the server is connected again", f.Connected)
	log("heard again")
	bob.expect("heard again")

	f.Close()
	o.door.revoke("of-bob")
	o.door.away = 3 // the bridge asks until it is answered
	o.forward(t, url, "server-token")
	bob.gone()
	r := h.remotes["home"]
	until(t, "the bridge forgets the tokens", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.asked) == 0 && len(r.tokenUses) == 0
	})
}

// A token that is another user's when the server comes back ends the sockets of the first user.
func TestTokenOfAnotherUser(t *testing.T) {
	o := newRemoteServer()
	_, url := newBridge(t, History{})
	f := o.forward(t, url, "server-token")
	until(t, "the server is connected", f.Connected)
	p := call(t, url)
	if _, reason := p.join(rigTopic, map[string]any{"token": "of-ann"}); reason != "" {
		t.Fatal(reason)
	}
	f.Close()
	o.door.mu.Lock()
	o.door.tokens["of-ann"] = Sight{User: "bob"}
	o.door.mu.Unlock()
	o.forward(t, url, "server-token")
	p.gone()
}

// Reads of apps that take long leave room for what others ask of the server.
func TestManyReadsLeaveRoom(t *testing.T) {
	o := newRemoteServer()
	held := make(chan struct{})
	defer close(held)
	o.api = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	})
	o.log.of("ann", "a", "one")
	o.log.of("ann", "a", "two")
	h, url := newBridge(t, History{Events: 1}) // the past is read from the server
	f := o.forward(t, url, "server-token")
	until(t, "the server is connected", f.Connected)
	const readers = maxAskingGets / maxGets
	for range readers {
		p := call(t, url)
		if _, reason := p.join(rigTopic, map[string]any{"token": "good"}); reason != "" {
			t.Fatal(reason)
		}
		for i := range maxGets {
			payload, _ := json.Marshal(getParams{fmt.Sprint(i), "/sessions"})
			if err := p.client.Push(rigTopic, eventGet, payload, func(phx.Reply) {}); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := h.remotes["home"]
	until(t, "all of them read", func() bool { return len(r.gets) == maxAskingGets })
	other := call(t, url)
	if got, reason := other.join(rigTopic, map[string]any{"token": "good", "since_id": "0000000000000000"}); reason != "" || got.Gap {
		t.Fatalf("a join with a past: %q %+v", reason, got)
	}
	other.expect("onetwo")
	if _, _, reply := other.get("/sessions"); reply != `{"reason":"busy"}` {
		t.Errorf("one more read: %s", reply)
	}
	if _, reason := call(t, url).join(rigTopic, map[string]any{"token": "of-ann"}); reason != "" {
		t.Errorf("a join with a token that the server has to be asked about: %q", reason)
	}
}

// A token of a user that expires ends by itself.
func TestTokenOfUserExpires(t *testing.T) {
	t.Parallel()
	o := newRemoteServer()
	o.door.expires = time.Now().Add(time.Second)
	_, url := newBridge(t, History{})
	f := o.forward(t, url, "server-token")
	until(t, "the server is connected", f.Connected)
	ann := call(t, url)
	if _, reason := ann.join(rigTopic, map[string]any{"token": "of-ann"}); reason != "" {
		t.Fatal(reason)
	}
	ann.gone()
	if _, reason := call(t, url).join(rigTopic, map[string]any{"token": "of-ann"}); reason != reasonUnauthorized {
		t.Errorf("an expired token: %q", reason)
	}
}
