package loquat_test

import (
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"loquat"
)

// A TextBuilder holds what was written, whatever the sizes and whenever it is read.
func TestTextBuilder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b loquat.TextBuilder
		var want strings.Builder
		for range rapid.IntRange(0, 8).Draw(t, "writes") {
			size := rapid.OneOf(rapid.IntRange(0, 100), rapid.SampledFrom([]int{1 << 19, 1<<19 - 1, 1 << 20, 1<<20 + 1})).Draw(t, "size")
			s := strings.Repeat(rapid.StringMatching(`[a-z]`).Draw(t, "letter"), size)
			b.WriteString(s)
			want.WriteString(s)
			if b.Len() != want.Len() {
				t.Fatalf("%d bytes, want %d", b.Len(), want.Len())
			}
			if rapid.Bool().Draw(t, "read") && b.String() != want.String() {
				t.Fatal("it holds another text")
			}
		}
		if b.String() != want.String() {
			t.Fatal("it holds another text in the end")
		}
	})
}

// To grow it copies nothing: a text costs its size, as much again to join, and no more. Large pieces are
// not copied at first, and a text of one large piece never is. A small text is not given the memory of a large one.
func TestTextBuilderGrowsInPlace(t *testing.T) {
	const mega = 1 << 20
	for name, c := range map[string]struct {
		texts, size, piece int
		most               float64 // times the size
	}{
		"a large text of small pieces":  {1, 16 * mega, 1000, 2.5},
		"a large text of tiny pieces":   {1, 16 * mega, 8, 2.5},
		"a large text of large pieces":  {1, 16 * mega, mega / 2, 1.2},
		"large texts of a single piece": {16, mega / 2, mega / 2, 0.1},
		"small texts":                   {1000, 100, 10, 10},
	} {
		piece := strings.Repeat("x", c.piece)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range c.texts {
			var text loquat.TextBuilder
			for text.Len() < c.size {
				text.WriteString(piece)
			}
			for range 3 {
				if got := len(text.String()); got != text.Len() {
					t.Errorf("%s: %d bytes of %d", name, got, text.Len())
				}
			}
		}
		runtime.ReadMemStats(&after)
		if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(c.texts*c.size); times > c.most {
			t.Errorf("%s: it allocates %.1f times the size of the text, want at most %.1f", name, times, c.most)
		}
	}
}

// A text of 16 MB or more is joined without being in memory twice: each 8 MB the collector returns the pieces
// that were copied. It does not run for less.
func TestTextBuilderReturnsMemory(t *testing.T) {
	const mega = 1 << 20
	for _, c := range []struct {
		pieces, size int
		collected    uint32
	}{{15, mega, 0}, {16, mega, 2}, {33, mega, 4}, {3, 12 * mega, 3}} {
		var before, after runtime.MemStats
		var text loquat.TextBuilder
		runtime.GC()
		runtime.ReadMemStats(&before)
		for range c.pieces {
			text.WriteString(strings.Repeat("x", c.size))
		}
		_ = text.String()
		runtime.ReadMemStats(&after)
		if got := after.NumForcedGC - before.NumForcedGC; got != c.collected {
			t.Errorf("%d pieces of %d bytes: the collector ran %d times, want %d", c.pieces, c.size, got, c.collected)
		}
		if times := (float64(after.HeapAlloc) - float64(before.HeapAlloc)) / float64(text.Len()); c.collected > 0 && times > 1.2 {
			t.Errorf("%d pieces of %d bytes: %.1f times the text is in memory", c.pieces, c.size, times)
		}
	}
}

// Quote joins and escapes in one copy of the right size, and leaves the builder empty.
func TestTextBuilderQuote(t *testing.T) {
	large := strings.Repeat("\"quoted\"\n", 100_000)
	for _, pieces := range [][]string{nil, {""}, {"a"}, {"a\"", "\xff", "漢"}, {large}, {"a", large, "b"}, {large, "a", large, large}} {
		var b loquat.TextBuilder
		for _, piece := range pieces {
			b.WriteString(piece)
		}
		got := b.Quote()
		if want := string(loquat.Quote(strings.Join(pieces, ""))); string(got) != want || cap(got) != len(got) {
			t.Errorf("%.50q are quoted as %.50q, of %d bytes in a buffer of %d; want %.50q", pieces, got, len(got), cap(got), want)
		}
		if b.Len() != 0 || b.String() != "" {
			t.Errorf("%.50q: %d bytes are left", pieces, b.Len())
		}
	}
}

// A text is not cut within a character. Where the text is not valid UTF-8, or the first character is
// larger than the piece, it is cut all the same: whoever reads piece by piece gets on.
func TestCharacterStart(t *testing.T) {
	for _, c := range []struct {
		text      string
		end, want int
	}{
		{"", 0, 0}, {"abc", 2, 2}, {"abc", 3, 3}, {"aé", 3, 3}, {"aé", 2, 1}, {"a漢b", 3, 1}, {"a漢b", 4, 4}, {"a🙂b", 4, 1}, {"a🙂b", 2, 1}, {"a🙂b", 5, 5}, {"aa🙂", 6, 6},
		{"é", 1, 1}, {"🙂", 3, 3}, {"\x80\x80", 1, 1}, {"aa\x80\x80\x80", 4, 1}, {"aa\x80\x80\x80\x80", 5, 5}, {"aa\x80\x80\x80\x80\x80", 6, 6}, {"éé\xff", 4, 4},
	} {
		if got := loquat.CharacterStart(c.text, c.end); got != c.want {
			t.Errorf("%q is cut at %d when %d was asked for, want %d", c.text, got, c.end, c.want)
		}
	}
}
