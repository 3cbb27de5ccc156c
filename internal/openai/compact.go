package openai

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"loquat"
	"loquat/internal/builtin"
	"loquat/internal/chat"
	"loquat/internal/httpapi/route"
)

// openAICompactRequest is the body of a compaction.
type openAICompactRequest struct {
	_                  struct{}        `additionalProperties:"true"`
	Model              string          `json:"model,omitempty" doc:"As in a response."`
	Input              json.RawMessage `json:"input,omitempty" doc:"As in a response. It may end in any item."`
	PreviousResponseID string          `json:"previous_response_id,omitempty" doc:"The response whose input and output, with all before them, come before the input."`
	Instructions       string          `json:"instructions,omitempty" doc:"What the summary should keep."`
}

// openAICompaction is a compaction: the messages of the user, then one item with the summary.
type openAICompaction struct {
	ID        string           `json:"id"`
	Object    string           `json:"object" enum:"response.compaction"`
	CreatedAt int64            `json:"created_at"`
	Output    []map[string]any `json:"output"`
	Usage     any              `json:"usage"`
}

const compactionPrefix = "cmp_"

// summaryMark is the beginning of a summary in a compaction item. Items of other services do not have it:
// their summaries are encrypted, and no backend here can read them.
const summaryMark = "loquat-summary:"

// readCompaction reads a compaction item as a system message, as compact_range writes one.
func (r *inputReader) readCompaction(at string, item loquat.Object) error {
	summary, ok := strings.CutPrefix(item.String("encrypted_content"), summaryMark)
	if !ok {
		return loquat.Invalid(at+".encrypted_content", "is not from /v1/responses/compact of a Loquat server; send the items themselves")
	}
	r.add(loquat.NewMessage{Role: loquat.RoleSystem, Content: summary})
	return nil
}

// compactResponse answers with the messages of the user and with a summary of all items. It stores nothing.
func (a *API) compactResponse(x *route.Exchange) error {
	ctx, done, err := a.beginWithBody(x)
	if err != nil {
		return err
	}
	defer done()
	in, err := decodeWithoutNulls[openAICompactRequest](x)
	if err != nil {
		return err
	}
	messages, err := a.messagesToCompact(ctx, x.Call.By, in)
	if err != nil {
		return err
	}
	if in.Model == "" {
		in.Model = loquat.DefaultAgent
	}
	reply, err := a.chat.Requests.AskModel(ctx, x.Call.By, in.Model, builtin.AskForSummary(messages, loquat.CleanText(in.Instructions)))
	if err != nil {
		return err
	}
	summary, err := builtin.SummaryOf(reply)
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, newCompaction(messages, loquat.CleanText(summary), reply))
}

func newCompaction(messages []loquat.Message, summary string, reply loquat.Reply) openAICompaction {
	id := chat.NewRequestID()
	out := openAICompaction{
		ID: responsePrefix + id, Object: "response.compaction", CreatedAt: time.Now().Unix(),
		Usage: usageOf([]loquat.Message{{Metadata: reply.Metadata}}),
	}
	if out.Usage == nil {
		out.Usage = newUsage(0, 0, 0, 0) // the field is required
	}
	for _, m := range messages {
		if m.Role == loquat.RoleUser {
			out.Output = append(out.Output, inputItems(withoutUploads(m))...)
		}
	}
	out.Output = append(out.Output, map[string]any{"type": itemCompaction, "id": compactionPrefix + id, "encrypted_content": summaryMark + summary})
	return out
}

// uploadLeftOut stands for an image that is stored here: the caller sends the items again, to a conversation that
// does not have it.
const uploadLeftOut = "[An uploaded image, which is left out here.]"

// withoutUploads returns a message whose attachments all have a URL.
func withoutUploads(m loquat.Message) loquat.Message {
	var list []loquat.Object
	if json.Unmarshal(m.Metadata[loquat.MetaAttachments], &list) != nil {
		return m
	}
	all := len(list)
	list = slices.DeleteFunc(list, func(a loquat.Object) bool { return a.String("url")+a.String("data_url") == "" })
	for range all - len(list) {
		m.Content = strings.TrimPrefix(m.Content+"\n"+uploadLeftOut, "\n")
	}
	m.Metadata = m.Metadata.Clone().Set(loquat.MetaAttachments, list)
	return m
}

// messagesToCompact returns the messages up to the end of the previous response, and those of the input.
func (a *API) messagesToCompact(ctx context.Context, by chat.By, in openAICompactRequest) ([]loquat.Message, error) {
	var out []loquat.Message
	if in.PreviousResponseID != "" {
		var err error
		if out, err = a.messagesUntil(ctx, by, in.PreviousResponseID); err != nil {
			return nil, err
		}
	}
	if in.Input != nil {
		input, err := readMessages("body.input", in.Input, a.itemsByID(ctx, by))
		if err != nil {
			return nil, err
		}
		for _, n := range input {
			m := loquat.Message{ID: chat.NewRequestID(), Role: n.Role, Content: n.Content, Metadata: n.Metadata}
			if len(n.Attachments) > 0 {
				m.Metadata = m.Metadata.Clone().Set(loquat.MetaAttachments, n.Attachments)
			}
			out = append(out, m)
		}
	}
	if len(out) == 0 {
		return nil, loquat.Invalid("body.input", "is missing, and so is previous_response_id; one of them has to have items")
	}
	return out, nil
}

// messagesUntil returns the messages of a session up to the end of a response.
func (a *API) messagesUntil(ctx context.Context, by chat.By, response string) (out []loquat.Message, err error) {
	e, err := a.previous(ctx, by, response)
	if err != nil {
		return nil, err
	}
	err = a.eachMessage(ctx, e.SessionID, false, func(i int, m loquat.Message) bool {
		if i < e.End {
			out = append(out, m)
		}
		return i < e.End
	})
	if err != nil {
		return nil, err
	}
	h, err := a.chat.Describe(ctx, e.SessionID)
	if err == nil && h.Checkpoint != e.Checkpoint {
		err = loquat.Errorf(loquat.CodeConflict, "the conversation of the response has changed meanwhile; try again")
	}
	return out, err
}
