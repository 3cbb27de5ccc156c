package loquat

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"unicode/utf8"
)

// Labels are the parts of a session's metadata that arrange lists of sessions: the keys pinned,
// archived and tags.
type Labels struct {
	Pinned   bool     // listed before the sessions that are not pinned
	Archived bool     // not listed unless the caller asks for it
	Tags     []string // sorted, each once
}

// MaxTags and MaxTag bound the tags of a session and the characters of a tag.
const (
	MaxTags = 32
	MaxTag  = 64
)

// LabelsOf returns the labels in a session's metadata. It ignores values that CheckLabels
// refuses, which sessions from before the labels may have.
func LabelsOf(metadata Object) Labels {
	l := Labels{Pinned: metadata.Bool(MetaPinned), Archived: metadata.Bool(MetaArchived)}
	if raw, ok := metadata[MetaTags]; ok && tagsFault(raw) == "" {
		_ = json.Unmarshal(raw, &l.Tags) // tagsFault has read it
		slices.Sort(l.Tags)
		l.Tags = slices.Compact(l.Tags)
	}
	return l
}

// CheckLabels adds to f what is wrong with the labels of a change of metadata at a location.
// Null removes a label.
func CheckLabels(f *FieldErrors, location string, metadata Object) {
	for _, key := range []string{MetaPinned, MetaArchived} {
		raw, ok := metadata[key]
		if ok && !slices.Contains([]string{"true", "false", "null"}, string(bytes.TrimSpace(raw))) {
			f.Add(location+"."+key, "has to be true or false")
		}
	}
	if raw, ok := metadata[MetaTags]; ok {
		if fault := tagsFault(raw); fault != "" {
			f.Add(location+"."+MetaTags, "%s", fault)
		}
	}
}

// tagsFault returns why a value cannot be the tags of a session, or an empty string. Null can be.
func tagsFault(raw json.RawMessage) string {
	var tags []string
	switch err := json.Unmarshal(raw, &tags); {
	case err != nil:
		return "has to be a list of texts"
	case len(tags) > MaxTags:
		return fmt.Sprintf("has %d entries; a session has at most %d tags", len(tags), MaxTags)
	}
	for i, tag := range tags {
		if n := utf8.RuneCountInString(tag); n == 0 || n > MaxTag {
			return fmt.Sprintf("has an entry %d of %d characters; a tag has 1 to %d", i, n, MaxTag)
		}
	}
	return ""
}
