package chat

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"loquat"
	"loquat/internal/store"
)

// attachment is an image of a message, by one of its three kinds.
type attachment struct {
	Type    string `json:"type"`
	URL     string `json:"url"`
	DataURL string `json:"data_url"`
	AssetID string `json:"asset_id"`
}

// imageTypes are the images that backends take.
var imageTypes = map[string]bool{"image/png": true, "image/jpeg": true, "image/gif": true, "image/webp": true}

// checkAttachments checks the attachments of a message that is to join a session.
func (s *Service) checkAttachments(location string, h store.Head, m loquat.Message) error {
	return s.checkAttachmentsFor(location, h.AgentID, h.Metadata, m)
}

func (s *Service) checkAttachmentsFor(location, agentID string, sessionMetadata loquat.Object, m loquat.Message) error {
	raw, ok := m.Metadata[loquat.MetaAttachments]
	if !ok {
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(raw, &list); err != nil {
		return loquat.Invalid(location+".attachments", "has to be a list")
	}
	e, err := s.effectiveOf(agentID, sessionMetadata.Object(loquat.MetaOverrides))
	if err != nil {
		return err
	}
	var faults []loquat.FieldError
	for i, item := range list {
		err := checkAttachment(fmt.Sprintf("%s.attachments[%d]", location, i), item, e.config)
		if fault, ok := errors.AsType[*loquat.Error](err); ok {
			faults = append(faults, fault.Fields...)
		}
	}
	return invalid(faults)
}

// checkAttachment wants exactly one kind, allowed by the config, that is what it says.
func checkAttachment(place string, raw json.RawMessage, cfg loquat.Object) error {
	var a attachment
	if err := json.Unmarshal(raw, &a); err != nil {
		return loquat.Invalid(place, "has to be an object like {\"type\": \"image\", \"url\": \"https://…\"}")
	}
	if a.Type != "image" {
		return loquat.Invalid(place+".type", "is %q; only image is known", a.Type)
	}
	kinds := 0
	for _, v := range []string{a.URL, a.DataURL, a.AssetID} {
		if v != "" {
			kinds++
		}
	}
	switch {
	case kinds != 1:
		return loquat.Invalid(place, "has to have exactly one of url, data_url and asset_id")
	case a.URL != "":
		return checkImageURL(place+".url", a.URL, cfg)
	case a.DataURL != "":
		return checkDataURL(place+".data_url", a.DataURL, cfg)
	}
	return loquat.Invalid(place+".asset_id", "names no asset of this session")
}

func checkImageURL(place, s string, cfg loquat.Object) error {
	if string(cfg["allow_image_attachment_url"]) == "false" {
		return loquat.Invalid(place, "is an image by URL, which allow_image_attachment_url of the configuration disallows")
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return loquat.Invalid(place, "has to be an absolute http or https URL")
	}
	return nil
}

func checkDataURL(place, s string, cfg loquat.Object) error {
	if string(cfg["allow_image_attachment_base64"]) == "false" {
		return loquat.Invalid(place, "is an inline image, which allow_image_attachment_base64 of the configuration disallows")
	}
	head, data, ok := strings.Cut(s, ",")
	claimed, isBase64 := strings.CutSuffix(strings.TrimPrefix(head, "data:"), ";base64")
	if !ok || !isBase64 || !strings.HasPrefix(head, "data:") {
		return loquat.Invalid(place, "has to be like data:image/png;base64,…")
	}
	if !imageTypes[claimed] {
		return loquat.Invalid(place, "is of type %q; png, jpeg, gif and webp are known", claimed)
	}
	b, err := base64.StdEncoding.DecodeString(data)
	if err != nil {
		return loquat.Invalid(place, "is not valid base64")
	}
	if is := http.DetectContentType(b); is != claimed {
		return loquat.Invalid(place, "says %s, but its bytes are %s", claimed, is)
	}
	return nil
}
