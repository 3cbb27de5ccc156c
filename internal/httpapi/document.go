package httpapi

import (
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"loquat/internal/httpapi/route"
)

// tags group the operations. docs/http.md has the same groups.
var tags = []*huma.Tag{
	{Name: "sessions", Description: "Sessions and their life."},
	{Name: "messages", Description: "The messages of a session."},
	{Name: "assets", Description: "Images that were uploaded to a session."},
	{Name: "requests", Description: "Requests for a reply."},
	{Name: "events", Description: "The log of all events."},
	{Name: "ui", Description: "What plugins let clients show, and their actions."},
	{Name: "catalog", Description: "Agents, models and plugins."},
	{Name: "access", Description: "Tokens, devices and browsers."},
	{Name: "bridge", Description: "Events pushed to apps."},
	{Name: pushTag, Description: "Notifications of browsers when a request ends."},
	{Name: "server", Description: "The state of the server."},
	{Name: "openai", Description: "For programs that speak OpenAI's API. Errors have OpenAI's form."},
}

// pathDocs describes the parameters of paths.
var pathDocs = map[string]string{
	"session_id":     "The id of a session.",
	"request_id":     "The id of a request.",
	"alternative_id": "The id of an alternative, from the list of alternatives.",
	"index":          "The index of a message in its session, from 0.",
	"asset_id":       "The id of an image of the session.",
	"action_id":      "The id of an action, as its element has it.",
	"token_id":       "The id of a token, not its secret.",
	"webhook_id":     "The id of a webhook.",
	"device_id":      "The id of a paired device.",

	"subscription_id": "The id of a subscription, as POST /push/subscriptions answers it.",
	"key":             "The key of a setting.",
	"model":           "The name of a model. It may hold slashes.",
}

// describe returns the OpenAPI document of routes.
func describe(routes []route.Route, schemas route.Schemas) ([]byte, error) {
	return route.Describe(routes, schemas, route.Document{
		Info: huma.Info{
			Title: "Loquat", Version: strconv.Itoa(apiVersion),
			License:     &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			Description: "Durable chat sessions, requests that run on them, and the events of both. A version only gains routes and fields.",
		},
		Tags: tags, PathDocs: pathDocs, Integers: []string{"index"},
	})
}
