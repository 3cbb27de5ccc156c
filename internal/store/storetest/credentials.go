package storetest

import (
	"reflect"
	"testing"
	"time"

	"loquat"
)

// credentials checks that credentials are loaded as they were stored, also after reopening.
func credentials(t *testing.T, open Open) {
	s := start(t, open)
	at := time.Date(2026, 11, 21, 10, 0, 0, 123e6, time.UTC)
	token := loquat.Credential{ID: "k1", Kind: "token", Name: "laptop ☂", Scope: "session", SessionID: "s", Digest: [32]byte{1}, CreatedAt: at, ExpiresAt: at.Add(time.Hour)}
	device := loquat.Credential{ID: "k2", Kind: "device", Name: "phone", Scope: "read", Digest: [32]byte{2}, CreatedAt: at.Add(time.Second)}
	browser := loquat.Credential{ID: "k0", Kind: "browser", Scope: "user", User: "Ann ☂", Digest: [32]byte{3}, Bearer: [32]byte{2}, CreatedAt: at.Add(time.Second), ExpiresAt: at.Add(time.Minute)}
	code := loquat.PairingCode{Public: "A7", Digest: [32]byte{4}, Scope: "full", ExpiresAt: at.Add(time.Minute)}
	other := loquat.PairingCode{Public: "B8", Digest: [32]byte{5}, Scope: "user", User: "Ann ☂", ExpiresAt: at}
	change := func(c loquat.CredentialChange) {
		t.Helper()
		now, err := s.LoadCredentials(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		c.Revision = now.Revision
		if _, stored, err := s.ChangeCredentials(t.Context(), c); err != nil || !stored {
			t.Fatalf("stored %v, %v", stored, err)
		}
	}
	check := func(want loquat.Credentials) {
		t.Helper()
		got, err := s.LoadCredentials(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got.Revision = 0
		if !reflect.DeepEqual(got, want) {
			t.Errorf("stored are\n%v, want\n%v", got, want)
		}
	}
	change(loquat.CredentialChange{Add: []loquat.Credential{device, token, browser}, Codes: []loquat.PairingCode{other, code}})
	check(loquat.Credentials{Credentials: []loquat.Credential{token, browser, device}, Codes: []loquat.PairingCode{code, other}})

	twin := loquat.Credential{ID: "k9", Kind: "token", Digest: token.Digest, CreatedAt: at}
	revision, err := s.CredentialsRevision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, stored, err := s.ChangeCredentials(t.Context(), loquat.CredentialChange{Revision: revision, Add: []loquat.Credential{twin}}); err == nil || stored {
		t.Error("a second credential with the same digest was stored")
	}
	if _, stored, err := s.ChangeCredentials(t.Context(), loquat.CredentialChange{Revision: revision + 1, Remove: []string{"k1"}}); err != nil || stored {
		t.Errorf("a change of another revision: stored %v, %v", stored, err)
	}

	code.Wrong, device.UsedOn = 3, "2026-11-21"
	if err := s.UseCredential(t.Context(), loquat.CredentialUse{ID: "k2", Day: device.UsedOn}); err != nil {
		t.Fatal(err)
	}
	change(loquat.CredentialChange{Codes: []loquat.PairingCode{code}, Drop: []string{"B8", "unknown"}, Remove: []string{"k1", "unknown"}})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start(t, open)
	check(loquat.Credentials{Credentials: []loquat.Credential{browser, device}, Codes: []loquat.PairingCode{code}})
}
