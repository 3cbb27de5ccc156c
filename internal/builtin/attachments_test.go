package builtin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"loquat"
	"loquat/internal/plugin"
	"loquat/internal/ui"
)

func TestAttachmentElements(t *testing.T) {
	all := `["image/png","image/jpeg","image/gif","image/webp"]`
	for name, c := range map[string]struct {
		config, byURL, types string // "" means that the element is absent
	}{
		"global form":  {"", "true", all},
		"by default":   {`{"model":"m"}`, "true", all},
		"no URLs":      {`{"allow_image_attachment_url":false}`, "false", all},
		"URLs alone":   {`{"allow_image_attachment_base64":false,"allow_image_attachment_url":true}`, "true", `[]`},
		"nothing goes": {`{"allow_image_attachment_base64":false,"allow_image_attachment_url":false}`, "", ""},
	} {
		var in ui.Input
		if c.config != "" {
			if err := json.Unmarshal([]byte(c.config), &in.Config); err != nil {
				t.Fatal(err)
			}
		}
		elements, err := Attachments{}.UIElements(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		if c.byURL == "" {
			if len(elements) != 0 {
				t.Errorf("%s: %v", name, elements)
			}
			continue
		}
		if len(elements) != 1 {
			t.Fatalf("%s: %v", name, elements)
		}
		e := elements[0]
		if e.String("ui_type") != "composer_attachment" || e.String("attachment_type") != "image" || e.String("key") == "" || e.String("label") == "" ||
			string(e["supports_url"]) != c.byURL || string(e["supported_file_types"]) != c.types {
			t.Errorf("%s: %v", name, e)
		}
	}
}

// shelf holds the images of one session.
type shelf map[string][]byte

func (s shelf) StoreAsset(_ context.Context, sessionID, name, mediaType string, content io.Reader) (loquat.Asset, error) {
	b, err := io.ReadAll(content)
	switch {
	case err != nil:
		return loquat.Asset{}, err
	case sessionID != "s":
		return loquat.Asset{}, loquat.Errorf(loquat.CodeNotFound, "no session %s", sessionID)
	case len(b) == 0:
		return loquat.Asset{}, loquat.Invalid("body", "is empty")
	case name == "bad":
		return loquat.Asset{}, loquat.Invalid("body.name", "is bad")
	}
	s["a1"] = b
	return loquat.Asset{AssetID: "a1", MediaType: mediaType, Size: int64(len(b)), Name: name}, nil
}

func (s shelf) OpenAsset(_ context.Context, _, assetID string) (loquat.Asset, io.ReadSeekCloser, error) {
	b, ok := s[assetID]
	if !ok {
		return loquat.Asset{}, nil, loquat.Errorf(loquat.CodeNotFound, "no asset %s", assetID)
	}
	return loquat.Asset{AssetID: assetID, MediaType: "image/gif", Size: int64(len(b)), Name: "cat"}, closing{bytes.NewReader(b)}, nil
}

func (s shelf) DeleteAsset(_ context.Context, _, assetID string) error {
	if assetID == "used" {
		return loquat.Errorf(loquat.CodeConflict, "it is used")
	}
	delete(s, assetID)
	return nil
}

type closing struct{ io.ReadSeeker }

func (closing) Close() error { return nil }

func TestAttachmentActions(t *testing.T) {
	images := shelf{}
	act := func(action, params string) (string, error) {
		call := plugin.ActionCall{ActionID: action, SessionID: "s", Host: plugin.Host{Assets: images}}
		if err := json.Unmarshal([]byte(params), &call.Params); err != nil {
			t.Fatal(err)
		}
		out, err := Attachments{}.Act(t.Context(), call)
		return string(out.Result), err
	}
	data := base64.StdEncoding.EncodeToString([]byte("GIF89a…"))
	for _, c := range []struct{ action, params, want string }{
		{"store_attachment", `{"data_url":"data:image/gif;base64,` + data + `","name":"cat"}`, `{"asset_id":"a1","media_type":"image/gif","size":9,"sha256":"","name":"cat"}`},
		{"download_attachment", `{"asset_id":"a1"}`, `{"data_url":"data:image/gif;base64,` + data + `","media_type":"image/gif","name":"cat"}`},
		{"delete_attachment", `{"asset_id":"a1"}`, `null`},
	} {
		if got, err := act(c.action, c.params); err != nil || got != c.want {
			t.Errorf("%s: %s, %v; want %s", c.action, got, err, c.want)
		}
	}
	if len(images) != 0 {
		t.Errorf("after its deletion: %v", images)
	}
	for _, c := range []struct {
		action, params string
		code           loquat.Code
		location       string
	}{
		{"store_attachment", `{}`, loquat.CodeInvalid, "body.params.data_url"},
		{"store_attachment", `{"data_url":1}`, loquat.CodeInvalid, "body.params.data_url"},
		{"store_attachment", `{"data_url":"https://x.example/a.png"}`, loquat.CodeInvalid, "body.params.data_url"},
		{"store_attachment", `{"data_url":"data:image/png;base64,%%"}`, loquat.CodeInvalid, "body.params.data_url"},
		{"store_attachment", `{"data_url":"data:image/png;base64,"}`, loquat.CodeInvalid, "body.params.data_url"},
		{"store_attachment", `{"data_url":"data:image/png;base64,AAAA","name":"bad"}`, loquat.CodeInvalid, "body.params.name"},
		{"store_attachment", `{"data_url":"data:image/png;base64,AAAA","size":1}`, loquat.CodeInvalid, "body.params.size"},
		{"delete_attachment", `{}`, loquat.CodeInvalid, "body.params.asset_id"},
		{"delete_attachment", `{"asset_id":"used"}`, loquat.CodeConflict, ""},
		{"download_attachment", `{"asset_id":"a1"}`, loquat.CodeNotFound, ""},
	} {
		_, err := act(c.action, c.params)
		e, ok := errors.AsType[*loquat.Error](err)
		if !ok || e.Code != c.code || c.location != "" && (len(e.Fields) != 1 || e.Fields[0].Location != c.location || !strings.HasPrefix(e.Detail, c.location)) {
			t.Errorf("%s with %s: %v", c.action, c.params, err)
		}
	}
	_, err := Attachments{}.Act(t.Context(), plugin.ActionCall{ActionID: "delete_attachment"})
	if loquat.CodeOf(err) != loquat.CodeInvalid {
		t.Errorf("without a session: %v", err)
	}
}
