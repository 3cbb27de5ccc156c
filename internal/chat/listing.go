package chat

import (
	"context"
	"fmt"

	"loquat"
	"loquat/internal/store"
)

// Sessions lists sessions: the pinned ones first, then newest change first.
func (s *Service) Sessions(ctx context.Context, q loquat.SessionQuery) (loquat.SessionList, error) {
	filter := store.SessionFilter{AgentID: q.AgentID, User: q.User, Tags: q.Tags, Pinned: q.Pinned, Archived: archivedFilter(q.Archived)}
	if q.Text != "" {
		return s.searchSessions(ctx, q, filter)
	}
	after, err := parsePageToken(q.PageToken)
	if err != nil {
		return loquat.SessionList{}, err
	}
	out := loquat.SessionList{Sessions: []loquat.SessionSummary{}}
	if q.PageToken == "" {
		latest := s.store.Last() // before the read, which has all of its changes
		out.CursorEventID = &latest
	}
	err = s.store.View(ctx, func(r *store.Reader) error {
		heads, next, err := r.Heads(filter, after, q.Limit)
		if err != nil {
			return err
		}
		if next != (store.Place{}) {
			out.NextPageToken = pageToken(next)
		}
		for _, h := range heads {
			summary, err := s.summary(r, h)
			if err != nil {
				return err
			}
			out.Sessions = append(out.Sessions, summary)
		}
		return nil
	})
	return out, err
}

// archivedFilter returns what a filter of archived sessions means in the store.
func archivedFilter(archived string) *bool {
	switch archived {
	case "", loquat.ArchivedNo:
		return new(bool)
	case loquat.ArchivedOnly:
		only := true
		return &only
	}
	return nil
}

func (s *Service) summary(r *store.Reader, h store.Head) (loquat.SessionSummary, error) {
	running, _, err := r.Running(h)
	return loquat.SessionSummary{
		SessionID: h.SessionID, AgentID: h.AgentID, User: h.User, Origin: h.Origin, CreatedAt: h.CreatedAt, UpdatedAt: h.UpdatedAt, Metadata: s.shown(h.Metadata),
		MessageCount: h.Count, CursorEventID: h.Cursor, ActiveRequestID: running.RequestID,
	}, err
}

// pageTokenFormat has the end of the log at the first page, whether the last session of the page
// before was pinned (1) or not (0), and its newest checkpoint at the first page.
const pageTokenFormat = "%d-%d-%d"

func pageToken(p store.Place) string {
	pinned := 0
	if p.Pinned {
		pinned = 1
	}
	return fmt.Sprintf(pageTokenFormat, p.At, pinned, p.Checkpoint)
}

// parsePageToken returns the place of a page_token, or the zero Place of an empty one.
func parsePageToken(token string) (p store.Place, err error) {
	if token == "" {
		return p, nil
	}
	pinned := 0
	_, err = fmt.Sscanf(token, pageTokenFormat, &p.At, &pinned, &p.Checkpoint)
	p.Pinned = pinned == 1
	if err != nil || pageToken(p) != token || p.At <= 0 || p.Checkpoint > p.At {
		return p, badPageToken(token)
	}
	return p, nil
}

func badPageToken(token string) error {
	const fault = "is not a next_page_token of this server"
	return &loquat.Error{Code: loquat.CodeInvalid, Malformed: true, Detail: "query.page_token " + fault,
		Fields: []loquat.FieldError{{Location: "query.page_token", Message: fault, Value: loquat.Clip(token, loquat.Excerpt)}}}
}
