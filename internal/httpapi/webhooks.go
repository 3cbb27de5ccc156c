package httpapi

import (
	"net/http"
	"net/url"

	"loquat"
	"loquat/internal/httpapi/route"
	"loquat/internal/webhook"
)

// webhooks serves the routes of webhooks.
type webhooks struct{ *webhook.Sender }

// How many deliveries a page holds.
const (
	defaultDeliveries = 100
	maxDeliveries     = 1000
)

func webhookRoutes(w webhooks) []route.Route {
	const path, tag = "/webhooks/{webhook_id}", "webhooks"
	one := []route.Response{{Status: http.StatusOK, Body: loquat.Webhook{}}}
	return []route.Route{
		{
			Method: http.MethodPost, Path: "/webhooks", ID: "makeWebhook", Tag: tag, Summary: "Send events to a URL",
			Full: true, Serve: w.add, Body: loquat.NewWebhook{}, Responses: []route.Response{{Status: http.StatusCreated, Body: loquat.Webhook{}}},
		},
		{
			Method: http.MethodGet, Path: "/webhooks", ID: "listWebhooks", Tag: tag, Summary: "List the webhooks",
			Full: true, Serve: w.list, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.WebhookList{}}},
		},
		{
			Method: http.MethodGet, Path: path, ID: "getWebhook", Tag: tag, Summary: "Show a webhook",
			Full: true, Serve: w.get, Responses: one,
		},
		{
			Method: http.MethodPatch, Path: path, ID: "changeWebhook", Tag: tag, Summary: "Change a webhook, or make another secret for it",
			Full: true, Serve: w.change, Body: loquat.WebhookPatch{}, Media: "application/merge-patch+json", Responses: one,
		},
		{
			Method: http.MethodDelete, Path: path, ID: "removeWebhook", Tag: tag, Summary: "Remove a webhook with what waits for it",
			Full: true, Serve: w.remove, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
		{
			Method: http.MethodGet, Path: path + "/deliveries", ID: "listDeliveries", Tag: tag, Summary: "List the events that were not delivered",
			Full: true, Serve: w.deliveries, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.WebhookDeliveries{}}},
			Query: []route.Param{
				{Name: "failed", Kind: route.Flag, Doc: "Only those that were given up."},
				{Name: "limit", Kind: route.Integer, Min: 1, Max: maxDeliveries, Default: defaultDeliveries, Doc: "How many to list."},
				{Name: "page_token", Kind: route.EventID, Doc: "The next_page_token of the page before."},
			},
		},
		{
			Method: http.MethodPost, Path: path + "/resend", ID: "resendDeliveries", Tag: tag, Summary: "Send events again that were given up",
			Full: true, Serve: w.resend, Body: loquat.Resend{}, Responses: []route.Response{{Status: http.StatusNoContent}},
		},
	}
}

func (w webhooks) add(x *route.Exchange) error {
	in, err := route.Decode[loquat.NewWebhook](x)
	if err != nil {
		return err
	}
	made, err := w.Add(x.R.Context(), in)
	if err != nil {
		return err
	}
	x.W.Header().Set("Location", "/webhooks/"+url.PathEscape(made.WebhookID))
	return x.Reply(http.StatusCreated, made)
}

func (w webhooks) list(x *route.Exchange) error {
	list, err := w.List(x.R.Context())
	if err != nil {
		return err
	}
	if list == nil {
		list = []loquat.Webhook{}
	}
	return x.Reply(http.StatusOK, loquat.WebhookList{Webhooks: list})
}

func (w webhooks) get(x *route.Exchange) error {
	one, err := w.Get(x.R.Context(), x.Path("webhook_id"))
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, one)
}

func (w webhooks) change(x *route.Exchange) error {
	in, err := route.Decode[loquat.WebhookPatch](x)
	if err != nil {
		return err
	}
	one, err := w.Change(x.R.Context(), x.Path("webhook_id"), in)
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, one)
}

func (w webhooks) remove(x *route.Exchange) error {
	if err := w.Remove(x.R.Context(), x.Path("webhook_id")); err != nil {
		return err
	}
	return done(x)
}

func (w webhooks) deliveries(x *route.Exchange) error {
	limit, after := defaultDeliveries, loquat.EventID(0)
	if n := x.Query.Integer("limit"); n != nil {
		limit = *n
	}
	if id := x.Query.EventID("page_token"); id != nil {
		after = *id
	}
	failed := x.Query.Flag("failed")
	list, err := w.Deliveries(x.R.Context(), x.Path("webhook_id"), failed, after, limit)
	if err != nil {
		return err
	}
	return x.Reply(http.StatusOK, list)
}

func (w webhooks) resend(x *route.Exchange) error {
	in, err := route.Decode[loquat.Resend](x)
	if err != nil {
		return err
	}
	event := loquat.EventID(0)
	if in.EventID != "" {
		if event, err = loquat.ParseEventID(in.EventID); err != nil {
			return loquat.Invalid("body.event_id", "%v", err)
		}
	}
	if err := w.Resend(x.R.Context(), x.Path("webhook_id"), event); err != nil {
		return err
	}
	return done(x)
}
