package chat

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/settings"
	"loquat/internal/store"
)

// attachment is an image of a message. The bytes of an inline image are not in it.
type attachment struct {
	place   string // like body.attachments[0].url
	inline  bool   // it is sent inline: a data URL or an asset
	assetID string
}

// attachmentKinds are the fields of which an attachment has exactly one.
var attachmentKinds = []string{"url", "data_url", "asset_id"}

// readAttachments checks a message's attachments as far as that is possible without the
// session, and stores them in the metadata. location is the location of the list in the
// client's input. The check is expensive because it decodes inline images.
func readAttachments(location string, m *loquat.Message) ([]attachment, error) {
	raw, ok := m.Metadata[loquat.MetaAttachments]
	if !ok {
		return nil, nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, loquat.Invalid(location, "has to be a list")
	}
	members, out, faults := make([]loquat.Object, len(list)), make([]attachment, len(list)), []loquat.FieldError(nil)
	for i, item := range list {
		if len(faults) >= loquat.MaxFieldErrors {
			break
		}
		place := fmt.Sprintf("%s[%d]", location, i)
		if json.Unmarshal(item, &members[i]) != nil || members[i] == nil {
			faults = append(faults, loquat.FieldError{Location: place, Message: `has to be an object like {"type": "image", "url": "https://…"}`})
			continue
		}
		wrong := attachmentFaults(place, members[i])
		if len(wrong) == 0 {
			var err error
			if out[i], err = readAttachment(place, members[i]); err != nil {
				wrong = fieldsOf(err)
			}
		}
		faults = append(faults, wrong...)
	}
	if err := loquat.InvalidFields(faults); err != nil {
		return nil, err
	}
	m.Metadata = m.Metadata.Clone().Set(loquat.MetaAttachments, members)
	return out, nil
}

func fieldsOf(err error) []loquat.FieldError {
	if e, ok := errors.AsType[*loquat.Error](err); ok {
		return e.Fields
	}
	return nil
}

// attachmentFaults returns the fields of an attachment that are unknown or of a wrong type,
// and reports a wrong `type`. It removes the kinds that are null or empty, which count as absent.
func attachmentFaults(place string, members loquat.Object) (faults []loquat.FieldError) {
	add := func(name, format string, args ...any) {
		faults = append(faults, loquat.FieldError{Location: place + "." + loquat.Clip(name, loquat.Excerpt), Message: fmt.Sprintf(format, args...)})
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if len(faults) >= loquat.MaxFieldErrors {
			break
		}
		var value any
		if err := json.Unmarshal(members[name], &value); err != nil {
			add(name, "cannot be read: %v", err)
			continue
		}
		text, isText := value.(string)
		switch {
		case name != "type" && !slices.Contains(attachmentKinds, name):
			add(name, "is not a field of an attachment; it has type and one of %s", strings.Join(attachmentKinds, ", "))
		case value == nil, isText && text == "" && name != "type":
			delete(members, name)
		case !isText:
			add(name, "has to be a string")
		case name == "type" && text != "image":
			add(name, `is %q; it has to be "image"`, loquat.Clip(text, loquat.Excerpt))
		}
	}
	if _, ok := members["type"]; !ok {
		add("type", `is missing; it has to be "image"`)
	}
	return faults
}

// readAttachment reads an attachment that has no attachmentFaults. It must have exactly one
// kind, and its bytes must be of the type that it claims.
func readAttachment(place string, members loquat.Object) (attachment, error) {
	var given []string
	for _, name := range attachmentKinds {
		if _, ok := members[name]; ok {
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
	if !asset.IsSupported(claimed) {
		return loquat.Invalid(place, "is of type %q; png, jpeg, gif and webp are known", loquat.Clip(claimed, loquat.Excerpt))
	}
	content := base64.NewDecoder(base64.StdEncoding, strings.NewReader(data))
	_, err := asset.Inspect(content, claimed)
	if r, ok := errors.AsType[*asset.ImageError](err); ok {
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

// checkAttachments checks attachments against their session: its config must allow their
// kind, and the session must have the assets.
func checkAttachments(s *settings.Resolver, list []attachment, r *store.Reader, h store.Head) error {
	if len(list) == 0 {
		return nil
	}
	e, err := s.ResolveStatic(h.AgentID, overridesOf(h))
	if err != nil {
		return err
	}
	var faults []loquat.FieldError
	for _, a := range list {
		message := disallowed(a, e.Config)
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
	return loquat.InvalidFields(faults)
}

// disallowed names the setting that forbids an attachment, "" for none.
func disallowed(a attachment, cfg loquat.Object) string {
	switch {
	case a.inline && string(cfg["allow_image_attachment_base64"]) == "false":
		return "is an image that is sent inline, which allow_image_attachment_base64 of the configuration disallows"
	case !a.inline && string(cfg["allow_image_attachment_url"]) == "false":
		return "is an image by URL, which allow_image_attachment_url of the configuration disallows"
	}
	return ""
}
