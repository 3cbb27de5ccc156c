package builtin

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/plugin"
	"loquat/internal/provider"
	"loquat/internal/ui"
)

// Attachments is the provider extension that shows how images are attached, and stores,
// deletes and downloads those of a session.
type Attachments struct{}

// The actions of the extension.
const (
	storeAttachment    = "store_attachment"
	deleteAttachment   = "delete_attachment"
	downloadAttachment = "download_attachment"
)

// Name is the plugin's reference.
func (Attachments) Name() string { return "reference_generic_compatible_attachments" }

// Kind is provider_extension.
func (Attachments) Kind() string { return plugin.KindExtension }

// BroughtBy returns the provider that this extension belongs to.
func (Attachments) BroughtBy() string { return provider.Name }

// UIElements returns a composer_attachment with the kinds of images that the config allows, or
// no element if it allows none.
func (Attachments) UIElements(_ context.Context, in ui.Input) ([]loquat.Object, error) {
	inline := string(in.Config["allow_image_attachment_base64"]) != "false"
	byURL := string(in.Config["allow_image_attachment_url"]) != "false"
	if !inline && !byURL {
		return nil, nil
	}
	types := []string{}
	if inline {
		types = asset.MediaTypes()
	}
	return []loquat.Object{loquat.Object{}.
		Set("ui_type", "composer_attachment").
		Set("key", "image").
		Set("attachment_type", "image").
		Set("label", "Image").
		Set("supports_url", byURL).
		Set("supported_file_types", types)}, nil
}

// Actions returns the action_ids of the extension.
func (Attachments) Actions() []string {
	return []string{storeAttachment, deleteAttachment, downloadAttachment}
}

// Act runs one of them on the images of the call's session.
func (a Attachments) Act(ctx context.Context, call plugin.ActionCall) (plugin.ActionResult, error) {
	if call.SessionID == "" {
		return plugin.ActionResult{}, loquat.Errorf(loquat.CodeInvalid, "%s is about images of a session; call it on one", call.ActionID)
	}
	var result any
	var err error
	switch call.ActionID {
	case storeAttachment:
		result, err = a.store(ctx, call)
	case deleteAttachment:
		result, err = a.delete(ctx, call)
	case downloadAttachment:
		result, err = a.download(ctx, call)
	default:
		return plugin.ActionResult{}, fmt.Errorf("no action %q", call.ActionID)
	}
	if err != nil {
		return plugin.ActionResult{}, err
	}
	raw, err := json.Marshal(result)
	return plugin.ActionResult{Result: raw}, err
}

func (Attachments) store(ctx context.Context, call plugin.ActionCall) (any, error) {
	if err := knownParams(call, "data_url", "name"); err != nil {
		return nil, err
	}
	dataURL, err := textParam(call, "data_url", true)
	if err != nil {
		return nil, err
	}
	name, err := textParam(call, "name", false)
	if err != nil {
		return nil, err
	}
	head, data, ok := strings.Cut(dataURL, ",")
	mediaType, isData := strings.CutPrefix(head, "data:")
	mediaType, isBase64 := strings.CutSuffix(mediaType, ";base64")
	if !ok || !isData || !isBase64 {
		return nil, loquat.Invalid("body.params.data_url", "has to be like data:image/png;base64,…")
	}
	content, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return nil, loquat.Invalid("body.params.data_url", "is not valid base64")
	}
	stored, err := call.Host.Assets.StoreAsset(ctx, call.SessionID, name, mediaType, bytes.NewReader(content))
	return stored, atParams(err)
}

// atParams changes the location of an error to the params that contained the image.
func atParams(err error) error {
	e, ok := errors.AsType[*loquat.Error](err)
	if !ok || len(e.Fields) == 0 {
		return err
	}
	places := map[string]string{"body": "body.params.data_url", "body.name": "body.params.name"}
	out := *e
	out.Fields = slices.Clone(e.Fields)
	for i, f := range out.Fields {
		if place, ok := places[f.Location]; ok {
			out.Fields[i].Location = place
		}
	}
	out.Detail = out.Fields[0].Location + " " + out.Fields[0].Message
	return &out
}

func (Attachments) delete(ctx context.Context, call plugin.ActionCall) (any, error) {
	id, err := assetParam(call)
	if err != nil {
		return nil, err
	}
	return nil, call.Host.Assets.DeleteAsset(ctx, call.SessionID, id)
}

// download is the result of download_attachment.
type download struct {
	DataURL   string `json:"data_url"`
	MediaType string `json:"media_type"`
	Name      string `json:"name,omitempty"`
}

func (Attachments) download(ctx context.Context, call plugin.ActionCall) (any, error) {
	id, err := assetParam(call)
	if err != nil {
		return nil, err
	}
	a, content, err := call.Host.Assets.OpenAsset(ctx, call.SessionID, id)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	var text strings.Builder
	text.Grow(base64.StdEncoding.EncodedLen(int(a.Size)) + 64)
	text.WriteString("data:" + a.MediaType + ";base64,")
	enc := base64.NewEncoder(base64.StdEncoding, &text)
	if _, err := io.Copy(enc, content); err != nil {
		return nil, fmt.Errorf("read asset %s: %w", id, err)
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return download{DataURL: text.String(), MediaType: a.MediaType, Name: a.Name}, nil
}

func assetParam(call plugin.ActionCall) (string, error) {
	if err := knownParams(call, "asset_id"); err != nil {
		return "", err
	}
	return textParam(call, "asset_id", true)
}

func knownParams(call plugin.ActionCall, names ...string) error {
	for name := range call.Params {
		if !slices.Contains(names, name) {
			return loquat.Invalid("body.params."+name, "is not a parameter of %s; its parameters are %s", call.ActionID, strings.Join(names, ", "))
		}
	}
	return nil
}

// textParam reads a parameter; null counts as absent.
func textParam(call plugin.ActionCall, name string, required bool) (string, error) {
	var text string
	raw := call.Params[name]
	if len(raw) > 0 && json.Unmarshal(raw, &text) != nil {
		return "", loquat.Invalid("body.params."+name, "has to be a text")
	}
	if required && text == "" {
		return "", loquat.Invalid("body.params."+name, "is missing")
	}
	return text, nil
}

// The plugin interfaces that Attachments implements.
var (
	_ plugin.Plugin    = Attachments{}
	_ plugin.Extension = Attachments{}
	_ plugin.Elements  = Attachments{}
	_ plugin.Actor     = Attachments{}
)
