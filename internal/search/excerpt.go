package search

import (
	"strings"
	"unicode/utf8"
)

// Sizes of an excerpt, in bytes of the text before it is cut at characters and words.
const (
	excerptBytes  = 240
	excerptBefore = 60 // before the first hit
	excerptShift  = 20 // how far an end of the excerpt moves to a space
)

// Part is a part of an excerpt.
type Part struct {
	Text string
	Hit  bool
}

// Excerpt returns the part of a text around the most hits, and whether text was cut off before
// and after it.
func Excerpt(text string, hits []Range) (parts []Part, before, after bool) {
	start, end := window(text, hits)
	add := func(from, to int, hit bool) {
		if from < to {
			parts = append(parts, Part{strings.ToValidUTF8(text[from:to], "\uFFFD"), hit})
		}
	}
	at := start
	for _, h := range hits {
		if h.End <= start || h.Start >= end {
			continue
		}
		add(at, max(h.Start, start), false)
		add(max(h.Start, start), min(h.End, end), true)
		at = min(h.End, end)
	}
	add(at, end, false)
	return parts, start > 0, end < len(text)
}

// window returns the bytes of the excerpt: from shortly before the hit that the most further
// hits follow.
func window(text string, hits []Range) (start, end int) {
	best, most := 0, 0
	for i, last := 0, 0; i < len(hits); i++ {
		for last < len(hits) && hits[last].End <= hits[i].Start+excerptBytes-excerptBefore {
			last++
		}
		if last-i > most {
			best, most = i, last-i
		}
	}
	if len(hits) > 0 {
		start = max(0, hits[best].Start-excerptBefore)
	}
	end = min(len(text), start+excerptBytes)
	start = max(0, min(start, end-excerptBytes))
	for start > 0 && start < end && !utf8.RuneStart(text[start]) {
		start++
	}
	for end > start && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	if start > 0 {
		limit := min(end, start+excerptShift)
		if len(hits) > 0 {
			limit = min(limit, max(start, hits[best].Start))
		}
		if i := strings.IndexAny(text[start:limit], " \n"); i >= 0 {
			start += i + 1
		}
	}
	if end < len(text) {
		if i := strings.LastIndexAny(text[max(start, end-excerptShift):end], " \n"); i >= 0 && max(start, end-excerptShift)+i > start {
			end = max(start, end-excerptShift) + i
		}
	}
	return start, end
}
