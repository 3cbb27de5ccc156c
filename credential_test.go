package loquat

import (
	"context"
	"reflect"
	"testing"
	"time"
)

func TestCredentials(t *testing.T) {
	at := time.Date(2026, 11, 22, 1, 2, 3, 0, time.UTC)
	past, next := time.Now().Add(-time.Minute), time.Now().Add(time.Minute)
	for expires, want := range map[time.Time]bool{{}: false, past: true, next: false} {
		if got := (Credential{ExpiresAt: expires}).Expired(); got != want {
			t.Errorf("a credential until %v has expired: %v", expires, got)
		}
	}
	c := Credential{ID: "i", Kind: CredentialToken, Name: "n", Scope: "session", SessionID: "s", User: "u", Role: "r", UsedOn: "2026-11-22"}
	want := Token{TokenID: "i", Name: "n", Source: TokenMade, Scope: "session", SessionID: "s", User: "u", Role: "r", LastUsedOn: "2026-11-22"}
	if got := c.AsToken(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	c.Kind, c.CreatedAt, c.ExpiresAt = CredentialConfig, at, at.Add(time.Hour)
	until := at.Add(time.Hour)
	want.Source, want.CreatedAt, want.ExpiresAt = TokenOfConfig, &at, &until
	if got := c.AsToken(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := c.AsDevice(); got != (Device{DeviceID: "i", DeviceName: "n", Scope: "session", User: "u", CreatedAt: at, LastUsedOn: "2026-11-22"}) {
		t.Errorf("%+v", got)
	}
}

func TestAudit(t *testing.T) {
	detail := AuditDetail("name", "n", "user", "", "count", 0, "odd")
	entry := AuditEntry{Actor: Actor{Kind: ActorCommand}, Detail: detail}
	actor, text, err := entry.EncodeAudit()
	if err != nil || string(actor) != `{"kind":"command"}` || string(text) != `{"count":0,"name":"n"}` {
		t.Errorf("%s, %s, %v", actor, text, err)
	}
	if _, _, err := (AuditEntry{Detail: Object{"n": []byte(`{`)}}).EncodeAudit(); err == nil {
		t.Error("a detail that is not JSON is encoded")
	}
	if got := ActorOf(t.Context()); got != (Actor{Kind: ActorCommand}) {
		t.Errorf("without an actor: %+v", got)
	}
	who := Actor{Kind: CallerDevice, ID: "i"}
	if got := ActorOf(WithActor(context.Background(), who)); got != who {
		t.Errorf("%+v", got)
	}
}
