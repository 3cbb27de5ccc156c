package loquat

// Agent is an agent that a session may use.
type Agent struct {
	AgentID    string `json:"agent_id"`
	ProviderID string `json:"provider"`
	Model      string `json:"model"`
}

// AgentList answers GET /agents.
type AgentList struct {
	Agents []Agent `json:"agents"`
}

// ModelList answers GET /models.
type ModelList struct {
	Models []Model `json:"models"`
}
