package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi"
	"loquat/internal/webpush"
)

// The keys of a browser, from RFC 8291.
const browserKeys = `{"p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4", "auth": "BTBZMqHH6r4Tts7J_aSIgg"}`

// A subscription belongs to the token that made it. A token of any scope may have one.
func TestPushSubscriptions(t *testing.T) {
	r := newRig(t)
	header := func(n loquat.NewToken) string {
		n.Name = "t"
		_, secret, err := r.keeper.MakeToken(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		return "Authorization: Bearer " + secret
	}
	session := header(loquat.NewToken{Scope: auth.Session, SessionID: "s"})
	read, full := header(loquat.NewToken{Scope: auth.Read}), header(loquat.NewToken{Scope: auth.Full})
	key := r.do("GET", "/push", "", session).want(t, 200).field(t, "public_key")
	if again := r.do("GET", "/push", "", full).want(t, 200).field(t, "public_key"); len(key) != 87 || again != key {
		t.Errorf("the keys are %q and %q", key, again)
	}
	const body = `{"endpoint": "https://8.8.8.8/%d", "expirationTime": null, "keys": ` + browserKeys + `}`
	var ids []string
	for i, token := range []string{session, read, full} {
		ids = append(ids, r.do("POST", "/push/subscriptions", fmt.Sprintf(body, i), token).want(t, 200).field(t, "subscription_id"))
	}
	if again := r.do("POST", "/push/subscriptions", fmt.Sprintf(body, 0), session).want(t, 200).field(t, "subscription_id"); again != ids[0] {
		t.Errorf("the same subscription has the ids %s and %s", ids[0], again)
	}
	r.do("DELETE", "/push/subscriptions/"+ids[0], "", full).wantProblem(t, 404, loquat.CodeNotFound)
	r.do("DELETE", "/push/subscriptions/"+ids[0], "", session).want(t, 204)
	r.do("DELETE", "/push/subscriptions/"+ids[0], "", session).wantProblem(t, 404, loquat.CodeNotFound)
	r.do("DELETE", "/push/subscriptions/"+ids[1], "", read).want(t, 204)

	for _, wrong := range []string{
		`{}`, `{"endpoint": "https://8.8.8.8/"}`, `{"endpoint": "https://127.0.0.1/", "keys": ` + browserKeys + `}`,
		`{"endpoint": "http://8.8.8.8/", "keys": ` + browserKeys + `}`, `{"endpoint": "https://8.8.8.8/", "keys": {"p256dh": "AA", "auth": "AA"}}`,
	} {
		r.do("POST", "/push/subscriptions", wrong, full).wantProblem(t, 422, loquat.CodeInvalid)
	}
	r.do("POST", "/push/subscriptions", `{"endpoint": "https://8.8.8.8/`+strings.Repeat("x", 20<<10)+`"}`, full).wantProblem(t, http.StatusRequestEntityTooLarge, loquat.CodeTooLarge)
	r.do("POST", "/push/subscriptions", "{}").wantProblem(t, 401, loquat.CodeUnauthorized)
}

func TestPushIsOffWithoutASubject(t *testing.T) {
	r := newRigWith(t, func(o *httpapi.Options) {
		off := webpush.Start(webpush.Options{Access: o.Access})
		t.Cleanup(off.Close)
		o.Push = off
	})
	if got := strings.TrimSpace(string(r.do("GET", "/push", "").want(t, 200).body)); got != "{}" {
		t.Errorf("GET /push answers %s", got)
	}
	r.do("POST", "/push/subscriptions", `{"endpoint": "https://8.8.8.8/", "keys": `+browserKeys+`}`).wantProblem(t, 404, loquat.CodeNotFound)
}
