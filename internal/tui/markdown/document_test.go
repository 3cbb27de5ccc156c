package markdown

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// parts returns the blocks of a document: the texts of those that have ended, and of the one that has not.
func parts(d *Document) (ended []string, tail string) {
	for i := range d.Len() {
		if b := d.Block(i); b.Ended {
			ended = append(ended, b.Text)
		} else {
			tail = b.Text
		}
	}
	return ended, tail
}

func TestBlocks(t *testing.T) {
	long := strings.Repeat("word ", maxBlock/5)
	code := strings.Repeat("x := 1\n", maxCode/7)
	for _, c := range []struct {
		name, text string
		want       []string
		tail       string
	}{
		{"nothing", "", nil, ""},
		{"an open paragraph", "one\ntwo", nil, "one\ntwo"},
		{"two paragraphs", "one\n\ntwo\n", []string{"one\n\n"}, "two\n"},
		{"an open fence keeps its empty lines", "```\na\n\nb\n", nil, "```\na\n\nb\n"},
		{"a closed fence ends with the next block", "```\na\n\nb\n```\n\nend", nil, "```\na\n\nb\n```\n\nend"},
		{"an item with two paragraphs stays whole", "- a\n\n  more\n\n- b\n", []string{"- a\n\n  more\n\n"}, "- b\n"},
		{"a long line is cut after a word", long + "end of it", []string{long[:maxBlock/5*5]}, "end of it"},
		{"long code is cut at a line and opened again", "```go\n" + code + "y\nz", []string{"```go\n" + code}, "```go\ny\nz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var d Document
			d.SetText(c.text)
			got, tail := parts(&d)
			if c.name == "a closed fence ends with the next block" { // its last line has no end yet
				d.SetText(c.text + "\n")
				got, tail = parts(&d)
				c.want, c.tail = []string{"```\na\n\nb\n```\n\n"}, "end\n"
			}
			if !reflect.DeepEqual(got, c.want) || tail != c.tail {
				t.Errorf("got %q and %q, want %q and %q", got, tail, c.want, c.tail)
			}
		})
	}
}

// Blocks that have ended stay, whatever follows, and do not depend on how the text grew.
func TestBlocksDoNotDependOnSteps(t *testing.T) {
	piece := rapid.SampledFrom([]string{"word ", "\n", "\n\n", "```", "```go\n", "~~~\n", "- item\n", "  more\n", "é漢", strings.Repeat("long ", 300), strings.Repeat("line\n", 100)})
	rapid.Check(t, func(rt *rapid.T) {
		pieces := rapid.SliceOfN(piece, 0, 40).Draw(rt, "pieces")
		var grown, whole Document
		text := ""
		var before []Block
		for _, p := range pieces {
			text += p
			grown.SetText(text)
			now := ended(&grown)
			if len(now) < len(before) || !slices.Equal(now[:len(before)], before) {
				rt.Fatalf("blocks changed: %+v became %+v", before, now)
			}
			before = now
		}
		whole.SetText(text)
		if got, want := all(&grown), all(&whole); !slices.Equal(got, want) {
			rt.Fatalf("in steps %+v, at once %+v", got, want)
		}
		for _, b := range all(&whole) {
			if len(b.Text) > 3*maxBlock {
				rt.Fatalf("a block has %d bytes", len(b.Text))
			}
		}
	})
}

func all(d *Document) (blocks []Block) {
	for i := range d.Len() {
		blocks = append(blocks, d.Block(i))
	}
	return blocks
}

func ended(d *Document) []Block {
	return slices.DeleteFunc(all(d), func(b Block) bool { return !b.Ended })
}
