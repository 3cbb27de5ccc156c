package client

import (
	"context"
	"net/http"

	"loquat"
)

// Elements returns the elements that plugins show for a session: those of core plugins, then those
// of application plugins.
func (c *Client) Elements(ctx context.Context, sessionID string) ([]loquat.Object, error) {
	var core, application loquat.UISchema
	if _, err := c.do(ctx, get(nil, "sessions", sessionID, "ui-schema"), &core); err != nil {
		return nil, err
	}
	_, err := c.do(ctx, get(nil, "sessions", sessionID, "application", "ui-schema"), &application)
	return append(core.Elements, application.Elements...), err
}

// ListFields returns the elements that application plugins show in a list of sessions.
func (c *Client) ListFields(ctx context.Context) (fields []loquat.Object, err error) {
	var schema loquat.UISchema
	_, err = c.do(ctx, get(nil, "application", "ui-schema"), &schema)
	for _, e := range schema.Elements {
		if e.String("ui_type") == "session_list_field" {
			fields = append(fields, e)
		}
	}
	return fields, err
}

// Plugins returns the plugins that the server has loaded, with their states.
func (c *Client) Plugins(ctx context.Context) ([]loquat.Plugin, error) {
	var list loquat.PluginList
	_, err := c.do(ctx, get(nil, "plugins"), &list)
	return list.Plugins, err
}

// Config returns the effective value of every setting of a session.
func (c *Client) Config(ctx context.Context, sessionID string) (map[string]loquat.ConfigValue, error) {
	var values loquat.ConfigValues
	_, err := c.do(ctx, get(nil, "sessions", sessionID, "config"), &values)
	return values.Values, err
}

// Act runs an action of a plugin. It does not repeat the call.
func (c *Client) Act(ctx context.Context, sessionID, actionID string, a loquat.Action) (loquat.ActionResult, error) {
	call := change(http.MethodPost, a, nil, "sessions", sessionID, "actions", actionID)
	call.header.Del("Idempotency-Key") // actions ignore it
	var res loquat.ActionResult
	_, err := c.do(ctx, call, &res)
	return res, err
}
