package loquat

import "time"

// SearchQuery is a search in messages.
type SearchQuery struct {
	Text      string    // what a person types: words, "phrases", beginnings of words that end in *
	SessionID string    // only this session, unless empty
	In        []string  // PartText, PartTool, PartReasoning; PartText if empty
	Role      string    // only messages of this role, unless empty
	Model     string    // only messages that this model made, unless empty
	AgentID   string    // only sessions of this agent, unless empty
	User      string    // only sessions of this user, unless empty
	Tags      []string  // only sessions that have all of them
	Archived  string    // ArchivedNo by default
	Since     time.Time // only messages made at this time or later, unless zero
	Before    time.Time // only messages made before this time, unless zero
	Limit     int       // 0 means the server's default, for a client
	PageToken string    // "" asks for the first page
}

// The parts that a search finds.
const (
	PartText      = "text"      // the content of a message that is not a tool message
	PartTool      = "tool"      // the content of a tool message
	PartReasoning = "reasoning" // the reasoning of an assistant message
	PartTitle     = "title"     // the title of a session
)

// SearchResult is a page of the messages that a search finds.
type SearchResult struct {
	Hits          []SearchHit `json:"hits"`
	NextPageToken string      `json:"next_page_token,omitempty" doc:"Absent on the last page. A page before it may have fewer hits than asked for, or none."`
	Incomplete    bool        `json:"incomplete,omitempty" doc:"Older messages are still being indexed, so hits may be missing."`
}

// SearchHit is a message that a search finds.
type SearchHit struct {
	SessionID string    `json:"session_id"`
	AgentID   string    `json:"agent_id"`
	Title     string    `json:"title,omitempty" doc:"Of the session."`
	MessageID string    `json:"message_id"`
	Role      string    `json:"role" enum:"user,assistant,system,tool"`
	Model     string    `json:"model,omitempty" doc:"That made the message."`
	CreatedAt time.Time `json:"created_at"`
	SearchMatch
}

// SearchMatch is where a search matches a session.
type SearchMatch struct {
	Part    string  `json:"part" enum:"text,tool,reasoning,title"`
	Index   *int    `json:"index,omitempty" doc:"Of the message; absent if the title matches."`
	Snippet Snippet `json:"snippet"`
}

// Snippet is an excerpt of a text.
type Snippet struct {
	Parts     []SnippetPart `json:"parts" doc:"Plain text; the texts of all parts in order are the excerpt."`
	CutBefore bool          `json:"cut_before,omitempty" doc:"The text begins before the excerpt."`
	CutAfter  bool          `json:"cut_after,omitempty" doc:"The text continues after the excerpt."`
}

// SnippetPart is a part of an excerpt.
type SnippetPart struct {
	Text string `json:"text"`
	Hit  bool   `json:"hit,omitempty" doc:"The part matches the search."`
}
