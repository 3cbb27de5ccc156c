package client

import (
	"context"
	"net/url"

	"loquat"
)

// ModelQuery chooses whose backend is asked for its models: the session's, the
// agent's, or the default agent's. Refresh passes by the server's cache.
type ModelQuery struct {
	AgentID, SessionID string
	Refresh            bool
}

// Agents returns the agents that there are.
func (c *Client) Agents(ctx context.Context) ([]loquat.Agent, error) {
	var answer loquat.AgentList
	_, err := c.do(ctx, get(nil, "agents"), &answer)
	return answer.Agents, err
}

// Models returns what a backend offers; none when it cannot say.
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

// Version returns what the server says of its build; `api` is the version of the
// HTTP API.
func (c *Client) Version(ctx context.Context) (loquat.Object, error) {
	var v loquat.Object
	_, err := c.do(ctx, get(nil, "version"), &v)
	return v, err
}

// Ready returns nil when the server can do its work. It asks once.
func (c *Client) Ready(ctx context.Context) error {
	_, err := c.once(ctx, get(nil, "readyz"), nil, nil)
	return err
}
