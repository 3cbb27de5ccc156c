package client

import (
	"context"
	"net/http"
	"net/url"

	"loquat"
)

// ModelQuery selects the backend whose models are listed: the backend of a session, of an
// agent, or of the default agent. Refresh bypasses the server's cache.
type ModelQuery struct {
	AgentID, SessionID string
	Refresh            bool
}

// Agents returns the agents.
func (c *Client) Agents(ctx context.Context) ([]loquat.Agent, error) {
	var answer loquat.AgentList
	_, err := c.do(ctx, get(nil, "agents"), &answer)
	return answer.Agents, err
}

// Models returns the models of a backend. The list is empty if the backend cannot list them.
func (c *Client) Models(ctx context.Context, q ModelQuery) ([]loquat.Model, error) {
	query := url.Values{}
	if q.AgentID != "" {
		query.Set("agent_id", q.AgentID)
	}
	if q.SessionID != "" {
		query.Set("session_id", q.SessionID)
	}
	if q.Refresh {
		query.Set("refresh", "true")
	}
	var answer loquat.ModelList
	_, err := c.do(ctx, get(query, "models"), &answer)
	return answer.Models, err
}

// ReloadConfig makes the server take up its changed configuration file.
func (c *Client) ReloadConfig(ctx context.Context) (out loquat.ConfigReload, err error) {
	_, err = c.do(ctx, newUnkeyedChange(http.MethodPost, nil, "config", "reload"), &out)
	return out, err
}
