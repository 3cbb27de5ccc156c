package loquat

import "strings"

// textPiece is the size of the pieces of a TextBuilder. A text up to this size is one
// piece, as in a strings.Builder.
const textPiece = 1 << 20

// TextBuilder gathers a text that may become large. It keeps pieces, so that it never
// copies what it has in order to grow: it holds each byte once, and twice while String
// joins the pieces. The zero TextBuilder is empty. It is not safe for concurrent use.
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
		for i, piece := range b.pieces {
			whole.WriteString(piece)
			b.pieces[i] = "" // it may be freed while the rest is copied
		}
		b.pieces = append(b.pieces[:0], whole.String())
	}
	return b.pieces[0]
}
