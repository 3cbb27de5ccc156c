package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/conversations"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const poem = "From the options of the agent."

func question(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "poet", Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(text)}}
}

func userItem(text string) responses.ResponseInputItemUnionParam {
	return responses.ResponseInputItemParamOfMessage(text, responses.EasyInputMessageRoleUser)
}

// responseCases are the cases of responses and conversations.
func responseCases() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"a response":               continued,
		"a stream of a response":   streamed,
		"a response in background": background,
		"a deleted response":       deleted,
		"a compaction":             compacted,
		"a conversation":           conversation,
		"items of a conversation":  pages,
		"an unknown response": func(ctx context.Context) error {
			_, err := relayed.Responses.Get(ctx, "resp_none", responses.ResponseGetParams{})
			return failsWith(http.StatusNotFound, err)
		},
		"an unknown conversation": func(ctx context.Context) error {
			_, err := relayed.Conversations.Get(ctx, "conv_none")
			return failsWith(http.StatusNotFound, err)
		},
		"a response with no input": func(ctx context.Context) error {
			_, err := relayed.Responses.New(ctx, responses.ResponseNewParams{Model: "poet"})
			return failsWith(http.StatusBadRequest, err)
		},
		"a response, token to read": func(ctx context.Context) error {
			_, err := client(server, "read-token").Responses.New(ctx, question("x"))
			return failsWith(http.StatusForbidden, err)
		},
	}
}

func continued(ctx context.Context) error {
	first, err := relayed.Responses.New(ctx, question("one"))
	if err != nil {
		return err
	}
	params := question("two")
	params.PreviousResponseID = openai.String(first.ID)
	second, err := relayed.Responses.New(ctx, params)
	if err != nil {
		return err
	}
	if first.OutputText() != poem || second.PreviousResponseID != first.ID || second.Conversation.ID != first.Conversation.ID || second.Usage.TotalTokens == 0 {
		return fmt.Errorf("the responses are %s and %s", first.RawJSON(), second.RawJSON())
	}
	return nil
}

func streamed(ctx context.Context) error {
	s := relayed.Responses.NewStreaming(ctx, question("one"))
	defer s.Close()
	text, last := "", ""
	for s.Next() {
		e := s.Current()
		if last = e.Type; e.Type == "response.output_text.delta" {
			text += e.Delta
		}
	}
	if text != poem || last != "response.completed" {
		return fmt.Errorf("the text is %q, the last event %s, the error %v", text, last, s.Err())
	}
	return s.Err()
}

func background(ctx context.Context) error {
	params := question("one")
	params.Background = openai.Bool(true)
	r, err := relayed.Responses.New(ctx, params)
	if err != nil {
		return err
	}
	// GetStreaming sends stream in the body of a GET, which servers don't read.
	s := relayed.Responses.GetStreaming(ctx, r.ID, responses.ResponseGetParams{StartingAfter: openai.Int(1)}, option.WithQuery("stream", "true"))
	defer s.Close()
	text := ""
	for s.Next() {
		if e := s.Current(); e.Type == "response.output_text.delta" {
			text += e.Delta
		} else if e.Type == "response.created" {
			return errors.New("the stream begins from its start")
		}
	}
	if r, err = relayed.Responses.Cancel(ctx, r.ID); err == nil && (text != poem || r.Status != responses.ResponseStatusCompleted) {
		err = fmt.Errorf("the text is %q, the status %s", text, r.Status)
	}
	return errors.Join(err, s.Err())
}

func deleted(ctx context.Context) error {
	r, err := relayed.Responses.New(ctx, question("one"))
	if err == nil {
		err = relayed.Responses.Delete(ctx, r.ID)
	}
	if err != nil {
		return err
	}
	_, err = relayed.Responses.Get(ctx, r.ID, responses.ResponseGetParams{})
	return failsWith(http.StatusNotFound, err)
}

func compacted(ctx context.Context) error {
	r, err := relayed.Responses.New(ctx, question("one"))
	if err != nil {
		return err
	}
	c, err := relayed.Responses.Compact(ctx, responses.ResponseCompactParams{Model: "poet", PreviousResponseID: openai.String(r.ID)})
	if err != nil {
		return err
	}
	if n := len(c.Output); n != 2 || c.Output[1].Type != "compaction" || c.Output[1].EncryptedContent == "" {
		return fmt.Errorf("the compaction is %s", c.RawJSON())
	}
	items := responses.ResponseInputParam{responses.ResponseInputItemParamOfCompaction(c.Output[1].EncryptedContent), userItem("two")}
	r, err = relayed.Responses.New(ctx, responses.ResponseNewParams{Model: "poet", Input: responses.ResponseNewParamsInputUnion{OfInputItemList: items}})
	if err == nil && r.OutputText() != poem {
		err = fmt.Errorf("the response is %s", r.RawJSON())
	}
	return err
}

func conversation(ctx context.Context) error {
	c, err := relayed.Conversations.New(ctx, conversations.ConversationNewParams{Metadata: map[string]string{"a": "1"}, Items: []responses.ResponseInputItemUnionParam{userItem("one")}})
	if err != nil {
		return err
	}
	if c, err = relayed.Conversations.Update(ctx, c.ID, conversations.ConversationUpdateParams{Metadata: map[string]string{"b": "2"}}); err != nil {
		return err
	}
	params := question("two")
	params.Conversation = responses.ResponseNewParamsConversationUnion{OfString: openai.String(c.ID)}
	r, err := relayed.Responses.New(ctx, params)
	if err != nil {
		return err
	}
	item, err := relayed.Conversations.Items.Get(ctx, c.ID, r.Output[0].ID, conversations.ItemGetParams{})
	if err != nil {
		return err
	}
	if item.ID != r.Output[0].ID || r.Conversation.ID != c.ID {
		return fmt.Errorf("the item is %s, the response %s", item.RawJSON(), r.RawJSON())
	}
	if _, err := relayed.Conversations.Items.Delete(ctx, c.ID, item.ID); err != nil {
		return err
	}
	if _, err := relayed.Conversations.Delete(ctx, c.ID); err != nil {
		return err
	}
	_, err = relayed.Conversations.Get(ctx, c.ID)
	return failsWith(http.StatusNotFound, err)
}

func pages(ctx context.Context) error {
	c, err := relayed.Conversations.New(ctx, conversations.ConversationNewParams{})
	if err != nil {
		return err
	}
	var items []responses.ResponseInputItemUnionParam
	for i := range 5 {
		items = append(items, userItem(fmt.Sprint(i)))
	}
	if _, err := relayed.Conversations.Items.New(ctx, c.ID, conversations.ItemNewParams{Items: items}); err != nil {
		return err
	}
	list := relayed.Conversations.Items.ListAutoPaging(ctx, c.ID, conversations.ItemListParams{Limit: openai.Int(2), Order: conversations.ItemListParamsOrderAsc})
	texts := ""
	for list.Next() {
		texts += list.Current().Content.OfMessageContentArray[0].Text
	}
	if texts != "01234" {
		return fmt.Errorf("the items are %q, the error %v", texts, list.Err())
	}
	return list.Err()
}
