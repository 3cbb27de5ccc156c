package loquat

// The states of an ImportedSession.
const (
	ImportStored  = "imported" // the session is new
	ImportSkipped = "skipped"  // it was there already, with the same content
	ImportFailed  = "failed"   // nothing of it was stored
)

// ImportedSession says what became of one session of an import.
type ImportedSession struct {
	Place     string   `json:"place" doc:"Where the session is in the file."`
	SessionID string   `json:"session_id,omitempty" doc:"On this server."`
	Status    string   `json:"status" enum:"imported,skipped,failed"`
	Error     string   `json:"error,omitempty" doc:"Why the session failed, and what to do."`
	Notes     []string `json:"notes,omitempty" doc:"What could not be taken over."`
}

// maxImportedSessions is how many sessions an ImportReport lists, at most.
const maxImportedSessions = 1000

// ImportReport answers an import. The sessions are stored one after the other, so those before an
// error are there.
type ImportReport struct {
	Format   string            `json:"format" doc:"Of the file: loquat, chatgpt, claude, librechat or open-webui."`
	Imported int               `json:"imported"`
	Skipped  int               `json:"skipped" doc:"Sessions that were there already, with the same content."`
	Failed   int               `json:"failed"`
	Error    string            `json:"error,omitempty" doc:"Why the rest of the file could not be read."`
	Sessions []ImportedSession `json:"sessions" doc:"The failed sessions, and those with notes, come before the others; at most 1000 in all."`
}

// Add counts a session. The report keeps those that failed or have notes, and others only while
// there is room.
func (r *ImportReport) Add(s ImportedSession) {
	switch s.Status {
	case ImportStored:
		r.Imported++
	case ImportSkipped:
		r.Skipped++
	default:
		r.Failed++
	}
	at := len(r.Sessions)
	if s.Error != "" || len(s.Notes) > 0 {
		at = r.eventful()
	}
	if at < maxImportedSessions {
		r.Sessions = append(r.Sessions[:min(len(r.Sessions), maxImportedSessions-1)], ImportedSession{})
		copy(r.Sessions[at+1:], r.Sessions[at:])
		r.Sessions[at] = s
	}
}

// eventful returns how many of the sessions failed or have notes. They come first.
func (r *ImportReport) eventful() int {
	for i, s := range r.Sessions {
		if s.Error == "" && len(s.Notes) == 0 {
			return i
		}
	}
	return len(r.Sessions)
}
