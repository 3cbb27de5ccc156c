package loquat

import "time"

// Node is a running server that writes to the log.
type Node struct {
	NodeID    string    `json:"node_id"`
	Name      string    `json:"name" doc:"The process and its host."`
	Version   string    `json:"version"`
	StartedAt time.Time `json:"started_at"`
	SeenAt    time.Time `json:"seen_at" doc:"When the node last renewed its lease, by the clock of the database."`
	Self      bool      `json:"self" doc:"This node answers the call."`
	Leads     bool      `json:"leads" doc:"This node does the housekeeping."`
}

// NodeList answers GET /nodes.
type NodeList struct {
	Nodes []Node `json:"nodes"`
}
