package search

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a search.
const (
	maxQuery = 1000 // characters
	maxWords = 200  // tokens
)

// Query is a search. A text matches if it has all terms.
type Query struct{ Terms []Term }

// Term is a word or a phrase: tokens that follow each other.
type Term struct {
	Words  []string
	Prefix bool // the last word may continue
}

// Parse reads what a person types: words, "phrases", and beginnings of words that end in `*`.
// Anything else separates words, so no text is malformed. The query has no terms if the text has
// no letters, digits or symbols. The error says which bound the text exceeds.
func Parse(text string) (Query, error) {
	if n := utf8.RuneCountInString(text); n > maxQuery {
		return Query{}, fmt.Errorf("has %d characters; a search has at most %d", n, maxQuery)
	}
	var q Query
	words := 0
	for rest := strings.Map(straightQuote, text); rest != ""; {
		var part string
		part, rest = nextPart(rest)
		t := newTerm(part)
		if len(t.Words) == 0 || slices.ContainsFunc(q.Terms, t.equal) {
			continue
		}
		if words += len(t.Words); words > maxWords {
			return Query{}, fmt.Errorf("has more than %d words; a search has at most %d", maxWords, maxWords)
		}
		q.Terms = append(q.Terms, t)
	}
	return q, nil
}

func straightQuote(r rune) rune {
	if r == '“' || r == '”' || r == '„' {
		return '"'
	}
	return r
}

// nextPart returns the first phrase or word of a text, without quotes, and what follows. A quote
// without its counterpart separates words.
func nextPart(text string) (part, rest string) {
	text = strings.TrimLeftFunc(text, unicode.IsSpace)
	if after, quoted := strings.CutPrefix(text, `"`); quoted {
		if part, rest, closed := strings.Cut(after, `"`); closed {
			return part, rest
		}
		return "", after
	}
	end := strings.IndexFunc(text, func(r rune) bool { return r == '"' || unicode.IsSpace(r) })
	if end < 0 {
		end = len(text)
	}
	return text[:end], text[end:]
}

func newTerm(part string) Term {
	tokens := Tokens(part)
	if len(tokens) == 0 {
		return Term{}
	}
	t := Term{}
	last := tokens[len(tokens)-1]
	switch {
	case last.run == 2: // the pair before it says the same, and the run may continue in a text
		tokens = tokens[:len(tokens)-1]
	case last.run == 1:
		t.Prefix = true
	default:
		t.Prefix = strings.HasPrefix(part[last.End:], "*")
	}
	for _, token := range tokens {
		t.Words = append(t.Words, token.Text)
	}
	return t
}

func (t Term) equal(u Term) bool { return t.Prefix == u.Prefix && slices.Equal(t.Words, u.Words) }

// Range is a part of a text, in bytes.
type Range struct{ Start, End int }

// Match is how a text matches a query.
type Match struct {
	Hits  []Range // in the order of the text, without overlaps
	Score int64   // higher is better
}

// Match returns how a text with these tokens matches. ok is false if it does not.
func (q Query) Match(tokens []Token) (m Match, ok bool) {
	if len(q.Terms) == 0 {
		return Match{}, false
	}
	for _, t := range q.Terms {
		found := 0
		for i := range tokens {
			if t.at(tokens[i:]) {
				found++
				m.Hits = append(m.Hits, Range{tokens[i].Start, tokens[i+len(t.Words)-1].End})
			}
		}
		if found == 0 {
			return Match{}, false
		}
		m.Score += score(found, len(tokens))
	}
	m.Hits = merge(m.Hits)
	return m, true
}

// at reports whether tokens begin with the term.
func (t Term) at(tokens []Token) bool {
	if len(tokens) < len(t.Words) {
		return false
	}
	for i, word := range t.Words {
		have := tokens[i].Text
		if have != word && !(t.Prefix && i == len(t.Words)-1 && strings.HasPrefix(have, word)) {
			return false
		}
	}
	return true
}

// score is BM25 of a term, in millionths, without the rarity of the term: all results have all
// terms, and a score that depends on other texts would move results between two pages.
func score(found, length int) int64 {
	const (
		saturation = 1.2
		byLength   = 0.75
		average    = 150 // tokens of a message
	)
	n := float64(found)
	return int64(1e6 * n * (saturation + 1) / (n + saturation*(1-byLength+byLength*float64(length)/average)))
}

// merge sorts ranges and joins those that overlap or touch.
func merge(ranges []Range) []Range {
	slices.SortFunc(ranges, func(a, b Range) int { return a.Start - b.Start })
	out := ranges[:0]
	for _, r := range ranges {
		if n := len(out); n > 0 && r.Start <= out[n-1].End {
			out[n-1].End = max(out[n-1].End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}
