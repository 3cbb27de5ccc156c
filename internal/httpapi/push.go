package httpapi

import (
	"context"
	"net/http"

	"loquat"
	"loquat/internal/auth"
	"loquat/internal/httpapi/route"
)

// Notifier keeps the subscriptions of browsers to notifications.
type Notifier interface {
	// PublicKey returns the key with which browsers subscribe, or "" if no notifications are sent.
	PublicKey(ctx context.Context) (string, error)
	// Subscribe stores a subscription for a principal and returns its id.
	Subscribe(ctx context.Context, who auth.Principal, in loquat.NewPushSubscription) (id string, err error)
	// Unsubscribe removes a subscription of a principal.
	Unsubscribe(ctx context.Context, who auth.Principal, id string) error
}

// pushTag marks the routes of notifications. Every valid token may call them: they are only about
// the notifications of the caller.
const pushTag = "push"

func pushRoutes(n Notifier) []route.Route {
	return []route.Route{
		{
			Method: http.MethodGet, Path: "/push", ID: "getPush", Tag: pushTag, Summary: "Show the key with which browsers subscribe to notifications",
			Responses: []route.Response{{Status: http.StatusOK, Body: loquat.PushServer{}}},
			Users:     true, Serve: func(x *route.Exchange) error {
				key, err := n.PublicKey(x.R.Context())
				if err != nil {
					return err
				}
				return x.Reply(http.StatusOK, loquat.PushServer{PublicKey: key})
			},
		},
		{
			Method: http.MethodPost, Path: "/push/subscriptions", ID: "subscribePush", Tag: pushTag, Summary: "Send notifications to a browser when a request ends",
			Body: loquat.NewPushSubscription{}, Responses: []route.Response{{Status: http.StatusOK, Body: loquat.PushSubscribed{}}},
			Users: true, Serve: func(x *route.Exchange) error {
				in, err := route.Decode[loquat.NewPushSubscription](x)
				if err != nil {
					return err
				}
				id, err := n.Subscribe(x.R.Context(), x.W.(*responseWriter).who, in)
				if err != nil {
					return err
				}
				return x.Reply(http.StatusOK, loquat.PushSubscribed{SubscriptionID: id})
			},
		},
		{
			Method: http.MethodDelete, Path: "/push/subscriptions/{subscription_id}", ID: "unsubscribePush", Tag: pushTag, Summary: "Send no more notifications to a browser",
			Responses: []route.Response{{Status: http.StatusNoContent}},
			Users:     true, Serve: func(x *route.Exchange) error {
				if err := n.Unsubscribe(x.R.Context(), x.W.(*responseWriter).who, x.Path("subscription_id")); err != nil {
					return err
				}
				return done(x)
			},
		},
	}
}
