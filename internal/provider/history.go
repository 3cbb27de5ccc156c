package provider

import (
	"bytes"
	"encoding/json"
	"slices"

	"loquat"
)

// turn holds a message in the form in which it is sent.
type turn struct {
	loquat.Message
	calls  []loquat.ToolCall
	images []image
	echo   bool // the message's reasoning is sent, too
}

// image holds an attachment, or the note that replaces an attachment that cannot be sent.
type image struct {
	url     json.RawMessage // a JSON string, not copied: it may be large
	assetID string          // assets.resolve replaces it by a file or a note
	file    *file
	note    string
}

const (
	lostResult     = "No result: the call was not completed."
	noteURL        = "[An image given by its URL is left out: this provider does not allow remote images.]"
	noteData       = "[An image is left out: this provider does not allow inline images.]"
	noteLost       = "[An image attachment is left out: it is no longer stored.]"
	noteUnresolved = "[An image attachment is left out: it cannot be read.]"
)

// lastUser returns the index of the last user message, or -1.
func lastUser(messages []loquat.Message) int {
	for i, m := range slices.Backward(messages) {
		if m.Role == loquat.RoleUser {
			return i
		}
	}
	return -1
}

// turns converts messages to turns that strict backends accept. Every tool message
// directly follows its call, every call has a result, and no assistant message is
// empty. lastUser is the index of the last user message; it may be beyond messages.
func (s *settings) turns(providerID string, messages []loquat.Message, lastUser int) []turn {
	var turns []turn
	var pending []image // of tool messages: those take only text
	for i, m := range messages {
		t := turn{Message: m}
		if m.Role != loquat.RoleTool && m.Role != loquat.RoleUser && len(pending) > 0 {
			turns, pending = append(turns, imagesTurn(pending)), nil
		}
		switch m.Role {
		case loquat.RoleTool:
			continue // placed with its call
		case loquat.RoleAssistant:
			t.calls = m.ToolCalls()
			if m.Content == "" && len(t.calls) == 0 {
				continue
			}
			t.echo = s.echoes(providerID, m, i > lastUser)
			turns = append(turns, t)
			results, images := s.results(t.calls, messages[i+1:])
			turns = append(turns, results...)
			pending = append(pending, images...)
			continue
		case loquat.RoleUser:
			t.images = append(pending, s.images(m)...)
			pending = nil
		}
		turns = append(turns, t)
	}
	if len(pending) > 0 {
		turns = append(turns, imagesTurn(pending))
	}
	return turns
}

// imagesTurn returns a turn with the images of a tool round. It is needed within a tool
// loop, where no user message follows that could carry the images.
func imagesTurn(images []image) turn {
	return turn{Message: loquat.Message{Role: loquat.RoleUser, Content: loquat.ToolImagesText}, images: images}
}

// results returns the results of calls, with their images. It searches the following messages
// up to the next assistant message. For a missing result it returns a placeholder.
func (s *settings) results(calls []loquat.ToolCall, following []loquat.Message) (turns []turn, images []image) {
	if len(calls) == 0 {
		return nil, nil
	}
	if next := slices.IndexFunc(following, func(m loquat.Message) bool { return m.Role == loquat.RoleAssistant }); next >= 0 {
		following = following[:next]
	}
	used := make([]bool, len(following))
	for _, call := range calls {
		result := turn{Message: loquat.Message{Role: loquat.RoleTool, Content: lostResult}}
		for i, m := range following {
			if m.Role == loquat.RoleTool && !used[i] && m.Metadata.String(loquat.MetaToolCallID) == call.ID {
				used[i] = true
				result.Message = m
				images = append(images, s.images(m)...)
				break
			}
		}
		result.Metadata = result.Metadata.Clone().Set(loquat.MetaToolCallID, call.ID)
		turns = append(turns, result)
	}
	return turns, images
}

// echoes reports whether a message's reasoning is sent back to the backend.
func (s *settings) echoes(providerID string, m loquat.Message, inLoop bool) bool {
	switch s.reasoningEcho {
	case echoAlways:
		return true
	case echoNever:
		return false
	}
	model := m.Metadata.String(metaRequestedModel)
	if model == "" {
		model = m.Metadata.String(loquat.MetaModel)
	}
	return inLoop && model == s.model && m.Metadata.String(loquat.MetaProvider) == providerID
}

// images returns a message's attachments.
func (s *settings) images(m loquat.Message) []image {
	raw := m.Metadata[loquat.MetaAttachments]
	var list []json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &list) != nil {
		return nil
	}
	var images []image
	for _, raw := range list {
		images = append(images, s.image(asMap(raw)))
	}
	return images
}

func (s *settings) image(a object) image {
	url, data := a["url"], a["data_url"]
	if isData(url) {
		url, data = nil, url
	}
	switch {
	case isString(data) && !s.allowData:
		return image{note: noteData}
	case isString(data):
		return image{url: data}
	case isString(url) && !s.allowURL:
		return image{note: noteURL}
	case isString(url):
		return image{url: url}
	case isString(a["asset_id"]) && !s.allowData:
		return image{note: noteData}
	case isString(a["asset_id"]):
		return image{assetID: loquat.Object(a).String("asset_id")}
	}
	return image{note: noteUnresolved}
}

func isString(raw json.RawMessage) bool { return len(raw) > 2 && raw[0] == '"' }

func isData(raw json.RawMessage) bool { return bytes.HasPrefix(raw, []byte(`"data:`)) }

// takeSystem removes the system messages from turns and returns their texts.
func takeSystem(turns []turn) (rest []turn, texts []string) {
	for _, t := range turns {
		if t.Role == loquat.RoleSystem {
			texts = append(texts, t.Content)
		} else {
			rest = append(rest, t)
		}
	}
	return rest, texts
}
