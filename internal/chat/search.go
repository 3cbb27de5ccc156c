package chat

import (
	"context"
	"fmt"

	"loquat"
	"loquat/internal/search"
	"loquat/internal/store"
)

// Search finds messages, the best of the newest first.
func (s *Service) Search(ctx context.Context, q loquat.SearchQuery) (loquat.SearchResult, error) {
	after, filter, err := searchOf(q.Text, q.PageToken)
	if err != nil {
		return loquat.SearchResult{}, err
	}
	filter.Text = len(q.In) == 0
	for _, part := range q.In {
		filter.Text = filter.Text || part == loquat.PartText
		filter.Tool = filter.Tool || part == loquat.PartTool
		filter.Reasoning = filter.Reasoning || part == loquat.PartReasoning
	}
	filter.Sessions = store.SessionFilter{AgentID: q.AgentID, User: q.User, Tags: q.Tags, Archived: archivedFilter(q.Archived)}
	filter.Role, filter.Model, filter.Since, filter.Before = q.Role, q.Model, q.Since, q.Before
	out := loquat.SearchResult{Hits: []loquat.SearchHit{}}
	err = s.store.View(ctx, func(r *store.Reader) error {
		if q.SessionID != "" {
			h, err := r.Head(q.SessionID)
			if err != nil {
				return err
			}
			if filter.Session = &h; q.Archived == "" {
				filter.Sessions.Archived = nil // the caller asked for this session
			}
		}
		found, next, complete, err := r.SearchMessages(filter, after, q.Limit)
		if err != nil {
			return err
		}
		out.NextPageToken, out.Incomplete = searchToken(next), !complete
		for _, f := range found {
			out.Hits = append(out.Hits, loquat.SearchHit{
				SessionID: f.Head.SessionID, AgentID: f.Head.AgentID, Title: s.shown(f.Head.Metadata).String(loquat.MetaTitle),
				MessageID: f.Message.ID, Role: f.Message.Role, Model: f.Message.Metadata.String(loquat.MetaModel), CreatedAt: f.Message.CreatedAt,
				SearchMatch: matchOf(f),
			})
		}
		return nil
	})
	return out, err
}

// searchSessions lists the sessions whose title or texts match a search.
func (s *Service) searchSessions(ctx context.Context, q loquat.SessionQuery, sessions store.SessionFilter) (loquat.SessionList, error) {
	after, filter, err := searchOf(q.Text, q.PageToken)
	if err != nil {
		return loquat.SessionList{}, err
	}
	filter.Text, filter.Sessions = true, sessions
	out := loquat.SessionList{Sessions: []loquat.SessionSummary{}}
	err = s.store.View(ctx, func(r *store.Reader) error {
		found, next, complete, err := r.SearchSessions(filter, after, q.Limit)
		if err != nil {
			return err
		}
		out.NextPageToken, out.Incomplete = searchToken(next), !complete
		for _, f := range found {
			summary, err := s.summary(r, f.Head)
			if err != nil {
				return err
			}
			match := matchOf(f)
			summary.Match = &match
			out.Sessions = append(out.Sessions, summary)
		}
		return nil
	})
	return out, err
}

// searchOf parses a search and the place where its page begins.
func searchOf(text, token string) (after store.SearchPlace, f store.SearchFilter, err error) {
	if f.Query, err = search.Parse(text); err != nil {
		return after, f, loquat.Invalid("query.q", "%s", err)
	}
	after, err = parseSearchToken(token)
	return after, f, err
}

func matchOf(f store.Found) loquat.SearchMatch {
	out := loquat.SearchMatch{Part: f.Part}
	if f.Index >= 0 {
		out.Index = &f.Index
	}
	parts, before, after := search.Excerpt(f.Text, f.Match.Hits)
	out.Snippet = loquat.Snippet{Parts: []loquat.SnippetPart{}, CutBefore: before, CutAfter: after || f.TextCut}
	for _, p := range parts {
		out.Snippet.Parts = append(out.Snippet.Parts, loquat.SnippetPart(p))
	}
	return out
}

// searchTokenFormat has the fields of a store.SearchPlace.
const searchTokenFormat = "s%d-%d-%d-%d-%d"

func searchToken(p store.SearchPlace) string {
	if p == (store.SearchPlace{}) {
		return ""
	}
	return fmt.Sprintf(searchTokenFormat, p.Start, p.Top, p.Bottom, p.Score, p.Item)
}

func parseSearchToken(token string) (p store.SearchPlace, err error) {
	if token == "" {
		return p, nil
	}
	_, err = fmt.Sscanf(token, searchTokenFormat, &p.Start, &p.Top, &p.Bottom, &p.Score, &p.Item)
	if err != nil || searchToken(p) != token || !p.Valid() {
		return p, badPageToken(token)
	}
	return p, nil
}
