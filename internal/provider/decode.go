package provider

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"loquat"
)

// chunkDecoder decodes JSON into chunks. JSON of the usual shape is read in one pass by
// the scanner; anything else is read by decodeGeneral.
type chunkDecoder struct {
	scanner
	chunk
	stats Stats

	contentKey       string // the member of a choice that holds the content: delta or message
	hasOtherKey      bool   // the choice has the other one of delta and message
	groq             json.RawMessage
	reasoningDetails json.RawMessage
	seen             uint64
}

// Stats counts how answers were decoded.
type Stats struct {
	Chunks    int // JSON values decoded
	Fallbacks int // how many of them decodeGeneral decoded
}

// maxMembers limits the JSON members of one event or completion, because each member
// costs more memory than it has bytes. Answers with log probabilities of every token have
// by far the most members.
const maxMembers = 4 << 20

var errTooManyMembers = fmt.Errorf("it has more than %d members", maxMembers)

// bounded returns an error for data that would take far more memory than its size.
func bounded(data []byte) error {
	if len(data) > maxMembers && bytes.Count(data, []byte{','}) > maxMembers {
		return errTooManyMembers
	}
	return nil
}

// isBound reports whether err comes from a limit. The answer may still be valid JSON.
func isBound(err error) bool {
	_, deep := errors.AsType[*loquat.DepthError](err)
	return deep || errors.Is(err, errTooManyMembers)
}

// decode reads one event of a stream. The chunk is valid until the next call.
func (d *chunkDecoder) decode(data []byte) (*chunk, error) {
	if err := bounded(data); err != nil {
		return nil, err
	}
	d.stats.Chunks++
	if d.contentKey = "delta"; d.decodeFast(data) {
		return &d.chunk, nil
	}
	d.stats.Fallbacks++
	d.chunk.reset()
	if err := decodeGeneral(data, &d.chunk, "delta", "message"); err != nil {
		return nil, err
	}
	return &d.chunk, nil
}

// decodeWhole reads an answer that is one completion. If it has both a message and a
// delta, the message holds the complete reply and counts.
func (d *chunkDecoder) decodeWhole(data []byte) (*chunk, error) {
	if err := bounded(data); err != nil {
		return nil, err
	}
	if d.contentKey = "message"; d.decodeFast(data) {
		d.chunk.whole = true
		return &d.chunk, nil
	}
	d.chunk.reset()
	if err := decodeGeneral(data, &d.chunk, "message", "delta"); err != nil {
		return nil, err
	}
	return &d.chunk, nil
}
