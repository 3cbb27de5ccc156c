package chat

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/store"
)

// attachment is an image of a message, without the bytes of an inline one.
type attachment struct {
	place   string // like body.attachments[0].url
	inline  bool   // it is sent inline: a data URL or an asset
	assetID string
}

// readAttachments checks what can be known of a message's attachments without its
// session, and names their members plainly. It is the heavy part: it decodes.
func readAttachments(location string, m *loquat.Message) ([]attachment, error) {
	raw, ok := m.Metadata[loquat.MetaAttachments]
	if !ok {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, loquat.Invalid(location+".attachments", "has to be a list")
	}
	members, out, faults := make([]loquat.Object, len(list)), make([]attachment, len(list)), []loquat.FieldError(nil)
	for i, item := range list {
		place := fmt.Sprintf("%s.attachments[%d]", location, i)
		var err error
		if json.Unmarshal(item, &members[i]) != nil || members[i] == nil {
			err = loquat.Invalid(place, `has to be an object like {"type": "image", "url": "https://…"}`)
		} else {
			out[i], err = readAttachment(place, members[i])
		}
		if fault, ok := errors.AsType[*loquat.Error](err); ok {
			faults = append(faults, fault.Fields...)
		}
	}
	if err := invalid(faults); err != nil {
		return nil, err
	}
	m.Metadata = m.Metadata.Clone().Set(loquat.MetaAttachments, members)
	return out, nil
}

// readAttachment wants exactly one kind, that is what it says.
func readAttachment(place string, members loquat.Object) (attachment, error) {
	if kind := members.String("type"); kind != "image" {
		return attachment{}, loquat.Invalid(place+".type", "is %q; only image is known", kind)
	}
	var given []string
	for _, name := range []string{"url", "data_url", "asset_id"} {
		if members.String(name) != "" {
			given = append(given, name)
		}
	}
	if len(given) != 1 {
		return attachment{}, loquat.Invalid(place, "has to have exactly one of url, data_url and asset_id")
	}
	a := attachment{place: place + "." + given[0], inline: given[0] != "url", assetID: members.String("asset_id")}
	switch given[0] {
	case "url":
		return a, checkImageURL(a.place, members.String("url"))
	case "data_url":
		return a, checkDataURL(a.place, members.String("data_url"))
	}
	return a, nil
}

func checkImageURL(place, s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return loquat.Invalid(place, "has to be an absolute http or https URL")
	}
	return nil
}

func checkDataURL(place, s string) error {
	head, data, ok := strings.Cut(s, ",")
	claimed, isBase64 := strings.CutSuffix(strings.TrimPrefix(head, "data:"), ";base64")
	if !ok || !isBase64 || !strings.HasPrefix(head, "data:") {
		return loquat.Invalid(place, "has to be like data:image/png;base64,…")
	}
	if !asset.Known(claimed) {
		return loquat.Invalid(place, "is of type %q; png, jpeg, gif and webp are known", claimed)
	}
	content := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
	_, err := asset.Inspect(content, claimed)
	if r, ok := errors.AsType[*asset.Refusal](err); ok {
		return loquat.Invalid(place, "%s", r.Clause)
	}
	if err == nil {
		_, err = io.Copy(io.Discard, content)
	}
	if err != nil {
		return loquat.Invalid(place, "is not valid base64")
	}
	return nil
}

// checkAttachments checks attachments against the session that they are to join: its
// config allows their kind, and it has the assets.
func (s *Service) checkAttachments(list []attachment, r *store.Reader, h store.Head) error {
	if len(list) == 0 {
		return nil
	}
	e, err := s.effective(h)
	if err != nil {
		return err
	}
	var faults []loquat.FieldError
	for _, a := range list {
		message := disallowed(a, e.config)
		if message == "" && a.assetID != "" {
			_, err := r.Asset(h, a.assetID)
			if loquat.CodeOf(err) == loquat.CodeNotFound {
				message = "names no asset of this session; upload the image to it first"
			} else if err != nil {
				return err
			}
		}
		if message != "" {
			faults = append(faults, loquat.FieldError{Location: a.place, Message: message})
		}
	}
	return invalid(faults)
}

// disallowed says which switch of the config keeps an attachment out; "" is none.
func disallowed(a attachment, cfg loquat.Object) string {
	switch {
	case a.inline && string(cfg["allow_image_attachment_base64"]) == "false":
		return "is an image that is sent inline, which allow_image_attachment_base64 of the configuration disallows"
	case !a.inline && string(cfg["allow_image_attachment_url"]) == "false":
		return "is an image by URL, which allow_image_attachment_url of the configuration disallows"
	}
	return ""
}
