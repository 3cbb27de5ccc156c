package provider

import (
	"errors"

	"loquat"
)

// MaxQuote is the length of the part of an answer that an error quotes.
const MaxQuote = maxQuote

// Dial and DefaultTransport connect to backends.
var (
	Dial             = dial
	DefaultTransport = defaultTransport
)

// DecodeCompletion decodes an answer that is not streamed. It returns its chunks, or the
// failure that it reports.
func DecodeCompletion(raw []byte) (chunks []loquat.Chunk, err error) {
	var r reading
	failed := r.completion(raw, func(c loquat.Chunk) bool {
		chunks = append(chunks, c)
		return true
	})
	switch {
	case failed == nil:
		return chunks, nil
	case failed.err != nil:
		return nil, failed.err
	}
	return nil, errors.New(failed.message)
}
