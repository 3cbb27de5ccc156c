// Package search defines what a full-text search finds. It splits texts and searches into
// tokens, in the same way for every database, and decides whether a text matches.
//
// A token is a word, folded so that upper case, accents and different encodings of the same
// character do not matter. Scripts that put no spaces between words have overlapping pairs of
// characters as tokens, so any part of such a text can be found.
package search

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Bounds of what is searched.
const (
	MaxToken = 128       // bytes of a token; the rest of a longer word is ignored
	maxText  = 256 << 10 // bytes of all tokens of a text; what follows cannot be found
)

// Token is a token of a text.
type Token struct {
	Text       string
	Start, End int // its bytes in the text

	run int // 1: a unit that is a run of its own, 2: the last unit of a longer run
}

// Tokens returns the tokens of a text, up to maxText. Their order is their position.
func Tokens(text string) []Token {
	s := splitter{text: text, size: maxText}
	s.split()
	return s.tokens
}

// splitter splits a text into tokens.
type splitter struct {
	text   string
	tokens []Token
	size   int // bytes of tokens that are left

	word       []byte // the word that is being read
	start, end int    // its bytes in the text

	// The last units of the run that is being read. A unit is a character of a script without
	// spaces, with its marks.
	before, unit unit
}

type unit struct {
	text       string
	start, end int
}

func (s *splitter) split() {
	s.tokens = make([]Token, 0, min(len(s.text)/6+1, 1024))
	for at := 0; at < len(s.text) && s.size > 0; {
		switch c := s.text[at]; {
		case c >= utf8.RuneSelf || at+1 < len(s.text) && s.text[at+1] >= utf8.RuneSelf: // the next may be a mark of this
			at = s.segment(at)
		case inWord(c):
			at = s.ascii(at)
		default:
			s.endWord()
			s.endUnits()
			at++
		}
	}
	s.endWord()
	s.endUnits()
}

// inWord reports whether a character of ASCII is a part of words.
func inWord(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' }

// ascii reads the characters of a word that are ASCII and that no mark follows, and returns where
// they end. A word that is nothing else is not copied.
func (s *splitter) ascii(at int) (end int) {
	for end = at; end < len(s.text) && inWord(s.text[end]) && (end+1 == len(s.text) || s.text[end+1] < utf8.RuneSelf); {
		end++
	}
	folded := strings.ToLower(s.text[at:end])
	if len(s.word) == 0 && (end == len(s.text) || !inWord(s.text[end])) {
		s.endUnits()
		s.add(Token{Text: folded[:min(len(folded), MaxToken)], Start: at, End: end})
		return end
	}
	for i := range len(folded) {
		s.addWord(folded[i:i+1], at+i, at+i+1)
	}
	return end
}

// maxSegment bounds the characters that are normalized together: a base with its marks.
const maxSegment = 256

// segment reads the character at a byte with its marks, and returns where the next begins.
func (s *splitter) segment(at int) (next int) {
	rest := s.text[at:min(len(s.text), at+maxSegment)]
	n := norm.NFKC.NextBoundaryInString(rest, true)
	if n <= 0 {
		n = len(rest)
	}
	for _, r := range norm.NFKC.String(strings.ToValidUTF8(rest[:n], "\uFFFD")) {
		s.fold(r, at, at+n)
	}
	return at + n
}

// fold reads a character of a segment in the form that is compared.
func (s *splitter) fold(r rune, start, end int) {
	if r < utf8.RuneSelf {
		if inWord(byte(r)) {
			s.addWord(strings.ToLower(string(r)), start, end)
		} else {
			s.endWord()
			s.endUnits()
		}
		return
	}
	if !unicode.Is(unicode.Hangul, r) {
		if base, ok := withoutAccents(r); ok {
			for _, b := range base {
				s.fold(b, start, end)
			}
			return
		}
	}
	switch {
	case ignored(r):
		s.addMark("", end)
	case unicode.IsMark(r):
		s.addMark(string(r), end)
	case r == utf8.RuneError:
		s.endWord()
		s.endUnits()
	case unspaced(r), unicode.Is(unicode.So, r):
		s.addUnit(string(unicode.ToLower(r)), start, end)
	case unicode.IsLetter(r), unicode.IsNumber(r):
		s.addWord(lower(r), start, end)
	default:
		s.endWord()
		s.endUnits()
	}
}

// withoutAccents returns the decomposition of a character without the marks that a search
// ignores. ok is false if there is none of these marks.
func withoutAccents(r rune) (base string, ok bool) {
	decomposed := norm.NFD.PropertiesString(string(r)).Decomposition()
	if decomposed == nil {
		return "", false
	}
	for _, d := range string(decomposed) {
		if ignored(d) {
			ok = true
		} else {
			base += string(d)
		}
	}
	return base, ok
}

// ignored reports whether a search ignores a character within a word: accents, vowel points of
// Hebrew and Arabic, and characters that cannot be seen.
func ignored(r rune) bool {
	switch {
	case r >= 0x300 && r <= 0x36F, // accents
		r >= 0x591 && r <= 0x5BD, r == 0x5BF, r == 0x5C1, r == 0x5C2, r == 0x5C4, r == 0x5C5, r == 0x5C7, // Hebrew
		r >= 0x610 && r <= 0x61A, r == 0x640, r >= 0x64B && r <= 0x65F, r == 0x670, // Arabic
		r >= 0xFE00 && r <= 0xFE0F, r >= 0xE0100 && r <= 0xE01EF, // variants of characters
		r >= 0x1F3FB && r <= 0x1F3FF: // colours of skin
		return true
	}
	return unicode.Is(unicode.Cf, r)
}

// unspaced reports whether the script of a character puts no spaces between words, or, as in
// Korean, words are often searched by their parts.
func unspaced(r rune) bool {
	if r < 0xE00 {
		return false
	}
	return r == 'ー' || unicode.In(r, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Hangul, unicode.Bopomofo, unicode.Yi,
		unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar)
}

func lower(r rune) string {
	switch r = unicode.ToLower(r); r {
	case 'ß':
		return "ss"
	case 'ς':
		return "σ"
	case 'ı':
		return "i"
	}
	return string(r)
}

// addWord adds a character to the word that is being read.
func (s *splitter) addWord(folded string, start, end int) {
	s.endUnits()
	if len(s.word) == 0 {
		s.start = start
	}
	if len(s.word)+len(folded) <= MaxToken {
		s.word = append(s.word, folded...)
	}
	s.end = end
}

// addUnit begins the next character of a script without spaces.
func (s *splitter) addUnit(folded string, start, end int) {
	s.endWord()
	s.pair()
	s.before, s.unit = s.unit, unit{folded, start, end}
}

// pair adds the last two units as a token.
func (s *splitter) pair() {
	if s.before.text != "" {
		s.add(Token{Text: s.before.text + s.unit.text, Start: s.before.start, End: s.unit.end})
	}
}

// addMark adds a mark to the character before. A mark that follows none is ignored.
func (s *splitter) addMark(mark string, end int) {
	switch {
	case len(s.word) > 0:
		s.addWord(mark, s.start, end)
	case s.unit.text != "" && len(s.unit.text)+len(mark) <= MaxToken/2:
		s.unit.text += mark
		s.unit.end = end
	}
}

func (s *splitter) endWord() {
	if len(s.word) > 0 {
		s.add(Token{Text: string(s.word), Start: s.start, End: s.end})
		s.word = s.word[:0]
	}
}

// endUnits adds the last pair of a run, and its last unit, so that each unit begins a token.
func (s *splitter) endUnits() {
	if s.unit.text == "" {
		return
	}
	s.pair()
	last := Token{Text: s.unit.text, Start: s.unit.start, End: s.unit.end, run: 1}
	if s.before.text != "" {
		last.run = 2
	}
	s.add(last)
	s.before, s.unit = unit{}, unit{}
}

func (s *splitter) add(t Token) {
	if s.size -= len(t.Text); s.size >= 0 {
		s.tokens = append(s.tokens, t)
	}
}
