package loquat

import (
	"encoding/json"
	"runtime/debug"
	"strings"
	"unicode/utf8"
)

// textPiece is the size of the pieces of a TextBuilder. A text up to this size is one
// piece, as in a strings.Builder.
const textPiece = 1 << 20

// TextBuilder gathers a text that may become large. It keeps pieces, so that it never
// copies what it has in order to grow. While it joins the pieces of a large text it returns
// the memory of those that it has copied. The zero TextBuilder is empty. It is not safe for concurrent use.
type TextBuilder struct {
	pieces []string
	last   strings.Builder // what was written after pieces
	size   int
}

// WriteString appends s. A large s is kept as it is and not copied.
func (b *TextBuilder) WriteString(s string) {
	b.size += len(s)
	if len(s) >= textPiece/2 {
		b.endPiece()
		b.pieces = append(b.pieces, s)
		return
	}
	if b.last.Len()+len(s) > textPiece {
		b.endPiece()
	}
	if b.last.Len() == 0 && len(b.pieces) > 0 {
		b.last.Grow(textPiece)
	}
	b.last.WriteString(s)
}

func (b *TextBuilder) endPiece() {
	if b.last.Len() > 0 {
		b.pieces = append(b.pieces, b.last.String())
		b.last = strings.Builder{}
	}
}

// Len returns the size of the text in bytes.
func (b *TextBuilder) Len() int { return b.size }

// String returns the text. Further calls, and further writes, copy nothing of it again.
func (b *TextBuilder) String() string {
	if len(b.pieces) == 0 {
		return b.last.String()
	}
	b.endPiece()
	if len(b.pieces) > 1 {
		var whole strings.Builder
		whole.Grow(b.size)
		b.drain(func(piece string) { whole.WriteString(piece) })
		b.pieces, b.size = append(b.pieces[:0], whole.String()), whole.Len()
	}
	return b.pieces[0]
}

// Quote returns the text as a JSON string, and empties the builder.
func (b *TextBuilder) Quote() json.RawMessage {
	b.endPiece()
	size := 2
	for _, piece := range b.pieces {
		size += quotedSize(piece) - 2
	}
	out := append(make([]byte, 0, size), '"')
	b.drain(func(piece string) { out = AppendEscaped(out, piece) })
	return append(out, '"')
}

// quoteRaw is Quote for a text that is already escaped.
func (b *TextBuilder) quoteRaw() []byte {
	b.endPiece()
	out := append(make([]byte, 0, b.size+2), '"')
	b.drain(func(piece string) { out = append(out, piece...) })
	return append(out, '"')
}

// freeStep is after how many bytes of drained pieces their memory is returned. Without it
// the text would be in memory twice, because the collector does not run while it is copied.
const freeStep = 8 << 20

// drain calls fn with each piece and drops the piece.
func (b *TextBuilder) drain(fn func(piece string)) {
	copied := 0
	for i, piece := range b.pieces {
		fn(piece)
		b.pieces[i] = ""
		if copied += len(piece); copied >= freeStep && b.size >= 2*freeStep {
			debug.FreeOSMemory()
			copied = 0
		}
	}
	b.pieces, b.size = b.pieces[:0], 0
}

// CharacterStart returns the last index up to end at which a character of s starts. In text
// that is not valid UTF-8 it may return end.
func CharacterStart(s string, end int) int {
	for i := end; i > end-utf8.UTFMax && i > 0; i-- {
		if i == len(s) || utf8.RuneStart(s[i]) {
			return i
		}
	}
	return end
}
