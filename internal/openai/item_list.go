package openai

import (
	"encoding/json"
	"net/http"
	"slices"

	"loquat"
	"loquat/internal/httpapi/route"
)

// The bounds of a page of items.
const (
	defaultItems = 20
	maxPage      = 100
)

// openAIItemList is a page of items.
type openAIItemList struct {
	Object  string            `json:"object" enum:"list"`
	Data    []json.RawMessage `json:"data"`
	FirstID *string           `json:"first_id"`
	LastID  *string           `json:"last_id"`
	HasMore bool              `json:"has_more"`
}

func pagingParams() []route.Param {
	return []route.Param{
		{Name: "limit", Kind: route.Integer, Min: 1, Max: maxPage, Default: defaultItems, Doc: "How many items."},
		{Name: "order", OneOf: []string{"asc", "desc"}, Doc: "desc, the newest first, is the default."},
		{Name: "after", Doc: "The id of the item after which the page begins."},
		{Name: "include", Doc: "Has no effect."},
	}
}

// replyPage answers with the page of the items that the query chooses.
func replyPage(x *route.Exchange, items []map[string]any) error {
	if x.Query.Text("order") != "asc" {
		slices.Reverse(items)
	}
	if after := x.Query.Text("after"); after != "" {
		i := slices.IndexFunc(items, func(item map[string]any) bool { return item["id"] == after })
		if i < 0 {
			return loquat.Invalid("query.after", "names none of the items: %q", loquat.Clip(after, loquat.Excerpt))
		}
		items = items[i+1:]
	}
	limit := defaultItems
	if n := x.Query.Integer("limit"); n != nil {
		limit = *n
	}
	return replyItems(x, items[:min(limit, len(items))], len(items) > limit)
}

// replyItems answers with items.
func replyItems(x *route.Exchange, items []map[string]any, more bool) error {
	page := openAIItemList{Object: "list", Data: []json.RawMessage{}, HasMore: more}
	for _, item := range items {
		body, err := json.Marshal(item)
		if err != nil {
			return err
		}
		id, _ := item["id"].(string)
		if page.FirstID == nil {
			page.FirstID = &id
		}
		page.LastID = &id
		page.Data = append(page.Data, body)
	}
	return x.Reply(http.StatusOK, page)
}
