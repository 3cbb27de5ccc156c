package httpapi_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/auth"
)

func TestWebhookRoutes(t *testing.T) {
	r := newRig(t)
	full := r.asFull()
	arrived := make(chan string, 100)
	to := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { arrived <- q.Header.Get("webhook-id") }))
	defer to.Close()

	var made, one loquat.Webhook
	got := r.do("POST", "/webhooks", `{"url":"`+to.URL+`","types":["session_created"],"description":"d"}`, full).want(t, 201)
	got.into(t, &made)
	if !strings.HasPrefix(made.Secret, "whsec_") || got.Header.Get("Location") != "/webhooks/"+made.WebhookID {
		t.Errorf("%+v, Location %s", made, got.Header.Get("Location"))
	}
	path := "/webhooks/" + made.WebhookID
	for _, body := range []string{`{"url":"ftp://x"}`, `{"url":"` + to.URL + `","types":["partial"]}`, `{"url":"` + to.URL + `","user":"\u0007"}`} {
		r.do("POST", "/webhooks", body, full).wantProblem(t, 422, loquat.CodeInvalid)
	}
	r.do("GET", path, "", full).want(t, 200).into(t, &one)
	if one.Secret != "" || one.Description != "d" {
		t.Errorf("%+v", one)
	}
	var list loquat.WebhookList
	r.do("GET", "/webhooks", "", full).want(t, 200).into(t, &list)
	if len(list.Webhooks) != 1 || list.Webhooks[0].WebhookID != made.WebhookID || list.Webhooks[0].Secret != "" {
		t.Errorf("%+v", list)
	}
	r.do("POST", "/sessions", `{"session_id":"s"}`, full).want(t, 201)
	if id := <-arrived; !strings.Contains(id, made.WebhookID) {
		t.Errorf("webhook-id %s", id)
	}
	r.do("PATCH", path, `{"types":["nothing"]}`, full, "Content-Type: application/merge-patch+json").wantProblem(t, 422, loquat.CodeInvalid)
	r.do("PATCH", path, `{"new_secret":true,"disabled":true}`, full, "Content-Type: application/merge-patch+json").want(t, 200).into(t, &one)
	if one.Secret == "" || one.Secret == made.Secret || one.Disabled == "" {
		t.Errorf("%+v", one)
	}
	r.do("GET", path+"/deliveries?failed=true&limit=1", "", full).want(t, 200)
	r.do("POST", path+"/resend", `{}`, full).want(t, 204)
	r.do("POST", path+"/resend", `{"event_id":"0000000000000001"}`, full).wantProblem(t, 404, loquat.CodeNotFound)
	r.do("POST", path+"/resend", `{"event_id":"1"}`, full).wantProblem(t, 422, loquat.CodeInvalid)
	r.do("DELETE", path, "", full).want(t, 204)
	r.do("GET", path, "", full).wantProblem(t, 404, loquat.CodeNotFound)
	r.do("GET", path+"/deliveries", "", full).wantProblem(t, 404, loquat.CodeNotFound)
}

// The audit says who changed what, and has no secret.
func TestAudit(t *testing.T) {
	r := newRig(t)
	full := r.asFull()
	var token loquat.Token
	r.do("POST", "/tokens", `{"name":"app","scope":"user","user":"ann","role":"main"}`, full).want(t, 201).into(t, &token)
	ann := "Authorization: Bearer " + token.Token
	var code loquat.Pairing
	r.do("POST", "/pairing", `{}`, ann).want(t, 200).into(t, &code)
	var device loquat.ClaimedDevice
	r.do("POST", "/pairing/claim", `{"code":"`+code.Code+`","device_name":"phone"}`).want(t, 200).into(t, &device)
	r.do("DELETE", "/devices/"+device.DeviceID, "", full, "On-Behalf-Of: ann").want(t, 204)
	var hook loquat.Webhook
	r.do("POST", "/webhooks", `{"url":"http://127.0.0.1:1/a-secret-path"}`, full).want(t, 201).into(t, &hook)
	r.do("DELETE", "/webhooks/"+hook.WebhookID, "", full).want(t, 204)
	r.do("DELETE", "/tokens/"+token.TokenID, "", full).want(t, 204)
	r.do("DELETE", "/tokens/nothing", "", full).want(t, 404) // changes nothing

	var list loquat.AuditList
	body := r.do("GET", "/audit?limit=1000", "", full).want(t, 200)
	body.into(t, &list)
	var story []string
	for i := len(list.Audit) - 1; i >= 0; i-- {
		e := list.Audit[i]
		who := e.Actor.Kind + ":" + e.Actor.Name
		if e.Actor.User != "" {
			who += "/" + e.Actor.User
		}
		if e.Actor.OnBehalfOf {
			who += "!"
		}
		if e.Action != loquat.AuditRolesChanged { // it comes when it comes
			story = append(story, e.Action+" by "+who)
		}
	}
	want := []string{
		"token_made by command:", // before the server ran
		"token_made by token:full", "pairing_code_made by token:app/ann", "device_paired by device:phone/ann", "device_removed by token:full/ann!",
		"webhook_made by token:full", "webhook_removed by token:full", "token_revoked by token:full",
	}
	if strings.Join(story, "\n") != strings.Join(want, "\n") {
		t.Errorf("the audit says\n%s\nwant\n%s", strings.Join(story, "\n"), strings.Join(want, "\n"))
	}
	for _, secret := range []string{token.Token, code.Code, device.Token, hook.Secret, "a-secret-path"} {
		if strings.Contains(string(body.body), secret) {
			t.Errorf("the audit has %q", secret)
		}
	}
	list = loquat.AuditList{}
	r.do("GET", "/audit?action=token_made&limit=1", "", full).want(t, 200).into(t, &list)
	if len(list.Audit) != 1 || list.Audit[0].Target != token.TokenID || list.Audit[0].Detail.String("role") != "main" || list.NextPageToken == "" {
		t.Errorf("%+v", list)
	}
	next := list.NextPageToken
	list = loquat.AuditList{}
	r.do("GET", "/audit?action=token_made&page_token="+next, "", full).want(t, 200).into(t, &list)
	if len(list.Audit) != 1 || list.NextPageToken != "" {
		t.Errorf("%+v", list)
	}
	r.do("GET", "/audit?page_token=x", "", full).want(t, 400)
	r.do("GET", "/audit", "", r.as(loquat.NewToken{Scope: auth.Read})).wantProblem(t, 403, loquat.CodeForbidden)
}
