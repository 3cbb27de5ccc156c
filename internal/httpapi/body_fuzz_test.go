package httpapi_test

import (
	"testing"

	"loquat"
	"loquat/internal/httpapi"
	"loquat/internal/httpapi/route"
)

// FuzzDecodeBody decodes random bytes as the body of each change. A body that the schema
// allows must decode, and every refusal must be an error of the client.
func FuzzDecodeBody(f *testing.F) {
	for _, s := range []string{
		`{"content":"a","metadata":{"x":1},"request_id":"r","delete_from":1,"on_busy":"queue","attachments":[{"type":"image","url":"u"}]}`,
		`{"indices":[0,1e3,-1,1.5,9223372036854775808]}`, `{"content":null}`, `{"session_id":"\u0000","messages":[{"role":"user","content":"x"}]}`,
		`{"up_to_index":99999999999999999999}`, `{"agent_id":"a","metadata":{"title":null}}`, `[]`, `null`, `7`, ``,
	} {
		f.Add([]byte(s))
	}
	schemas := httpapi.NewSchemas()
	f.Fuzz(func(t *testing.T, body []byte) {
		x := &route.Exchange{Schemas: schemas, Body: body}
		if body == nil {
			x.Body = []byte{}
		}
		_, send := route.Decode[loquat.Send](x)
		_, message := route.Decode[loquat.NewMessage](x)
		_, content := route.Decode[loquat.MessagePatch](x)
		_, remove := route.Decode[loquat.MessageIndices](x)
		_, session := route.Decode[loquat.NewSession](x)
		_, patch := route.Decode[loquat.SessionPatch](x)
		_, fork := route.Decode[loquat.Fork](x)
		for name, err := range map[string]error{"send": send, "message": message, "content": content, "indices": remove, "session": session, "patch": patch, "fork": fork} {
			if err != nil && loquat.CodeOf(err) != loquat.CodeInvalid {
				t.Errorf("%s of %q: %v", name, body, err)
			}
		}
	})
}
