package loquat_test

import (
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
		for range rapid.IntRange(0, 30).Draw(t, "writes") {
			size := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 3<<20), rapid.SampledFrom([]int{1 << 19, 1<<19 - 1, 1 << 20, 1<<20 + 1})).Draw(t, "size")
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

// To grow it copies nothing: a text of 64 MiB costs as much again to join, and no more.
func TestTextBuilderGrowsInPlace(t *testing.T) {
	const size, piece = 64 << 20, 1000
	s := strings.Repeat("x", piece)
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var text loquat.TextBuilder
			for text.Len() < size {
				text.WriteString(s)
			}
			if len(text.String()) < size {
				b.Fatal("it is too short")
			}
		}
	}).AllocedBytesPerOp()
	if allocated > size*9/4 {
		t.Errorf("it allocates %.1f times the size of the text", float64(allocated)/size)
	}
}
