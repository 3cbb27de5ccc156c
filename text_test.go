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

// To grow it copies nothing: a text costs its size, as much again to join, and no more.
func TestTextBuilderGrowsInPlace(t *testing.T) {
	const size = 16 << 20
	piece := strings.Repeat("x", 1000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	var text loquat.TextBuilder
	for text.Len() < size {
		text.WriteString(piece)
	}
	whole := text.String()
	runtime.ReadMemStats(&after)
	if times := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(whole)); times > 2.5 {
		t.Errorf("it allocates %.1f times the size of the text", times)
	}
}
