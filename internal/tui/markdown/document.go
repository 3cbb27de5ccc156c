package markdown

import (
	"strings"
	"unicode/utf8"

	"loquat/internal/readable"
)

// The largest sizes of blocks in bytes, about. They bound the work for each frame while a reply
// streams, because the last block is rendered again and again. Code costs more than text.
const (
	maxBlock = 4 << 10
	maxCode  = 1 << 10
)

// Block is a part of a document.
type Block struct {
	Text   string
	Spaced bool // an empty line is between the block before it and this one
	Ended  bool // it never changes
}

// Document splits a text that grows into blocks: paragraphs, lists, tables, fences. A block that
// has ended never changes, so a client renders it once. The result does not depend on the steps in
// which the text grew. It keeps one text, and for each block only where it is.
type Document struct {
	text   string
	blocks []span // those that have ended
	start  int    // of the block that has not ended
	line   int    // of the first line that was not read

	reopen int    // the line that the open block has in front, see span
	fence  string // the marker of the open fence
	opener int    // where the line begins that opened it
	blank  bool   // the line before was empty
	joined bool   // the open block continues the block before it
}

// span is the place of a block in the text.
type span struct {
	start, end uint32
	reopen     uint32 // where the line begins that opened the fence of which this is a part, plus 1; 0 if there is none
	joined     bool   // no empty line is before it
}

// SetText replaces the text. If it begins with the blocks that have ended, these stay.
func (d *Document) SetText(text string) {
	if len(text) < d.line || text[:d.line] != d.text[:d.line] {
		*d = Document{}
	}
	d.text = text
	for d.readLine() {
	}
}

// Len returns the number of blocks. The last may not have ended.
func (d *Document) Len() int {
	if d.tail().end > 0 {
		return len(d.blocks) + 1
	}
	return len(d.blocks)
}

// Block returns the block at an index.
func (d *Document) Block(i int) Block {
	if i == len(d.blocks) {
		return d.block(d.tail(), i > 0, false)
	}
	return d.block(d.blocks[i], i > 0, true)
}

func (d *Document) block(s span, follows, ended bool) Block {
	text := d.text[s.start:s.end]
	if s.reopen > 0 {
		line, _, _ := strings.Cut(d.text[s.reopen-1:], "\n")
		text = line + "\n" + text
	}
	return Block{Text: text, Spaced: follows && !s.joined, Ended: ended}
}

// tail returns the block that has not ended, the zero span if there is none.
func (d *Document) tail() span { return d.spanTo(len(d.text)) }

// spanTo returns the block from d.start to an offset, the zero span if nothing is there.
func (d *Document) spanTo(end int) span {
	text := d.text[d.start:end]
	if strings.TrimSpace(text) == "" {
		return span{}
	}
	s := span{start: uint32(d.start), end: uint32(end), reopen: uint32(d.reopen), joined: d.joined}
	if n := len(d.blocks); n > 0 && isItem(text) && isItem(d.block(d.blocks[n-1], false, true).Text) {
		s.joined = true
	}
	return s
}

// isItem reports whether a block begins with an item of a list.
func isItem(text string) bool {
	mark, _, ok := strings.Cut(text, " ")
	digits := strings.TrimRight(mark, ".)")
	return ok && (mark == "-" || mark == "*" || mark == "+" || digits != mark && digits != "" && strings.Trim(digits, "0123456789") == "")
}

// readLine reads the next line if it is complete, and ends the block before it or with it.
func (d *Document) readLine() bool {
	rest := d.text[d.line:]
	end := strings.IndexByte(rest[:min(len(rest), maxBlock)], '\n')
	if end < 0 {
		if len(rest) < maxBlock {
			return false
		}
		d.cut(d.line + cutPoint(rest[:maxBlock]))
		return true
	}
	line := rest[:end]
	text := strings.TrimSpace(line)
	indented := line != "" && (line[0] == ' ' || line[0] == '\t')
	next := d.line + end + 1
	switch {
	case d.fence != "":
		if text != "" && !d.blank && d.line-d.start > maxCode {
			d.cut(d.line)
		}
		if readable.EndsFence(line, d.fence) {
			d.fence = ""
		}
	case text == "":
	case d.line > d.start && !indented && (d.blank || d.line-d.start > maxBlock):
		d.end(d.line)
		fallthrough
	default:
		if d.fence, _ = readable.Fence(line); d.fence != "" {
			d.opener = d.line
		}
	}
	d.blank, d.line = text == "", next
	return true
}

// end ends the block at an offset of the text.
func (d *Document) end(at int) {
	if s := d.spanTo(at); s.end > 0 {
		d.blocks = append(d.blocks, s)
	}
	d.start, d.reopen, d.joined = at, 0, false
}

// cut ends a block that is too large. A fence continues in the next block.
func (d *Document) cut(at int) {
	d.end(at)
	d.line, d.blank, d.joined = at, false, true
	if d.fence != "" {
		d.reopen = d.opener + 1
	}
}

// cutPoint returns where to cut a line that is too long: after a space, or else between characters.
func cutPoint(line string) int {
	if i := strings.LastIndexByte(line, ' '); i > 0 {
		return i + 1
	}
	for i := len(line) - 1; i > len(line)-utf8.UTFMax; i-- {
		if utf8.RuneStart(line[i]) {
			return i
		}
	}
	return len(line)
}
