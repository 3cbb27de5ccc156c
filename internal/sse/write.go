package sse

import (
	"bytes"
	"strconv"
	"time"
)

// Frame is an event to write. Empty fields are left out.
type Frame struct {
	ID    string
	Name  string
	Data  []byte // nil: no data; each line becomes a `data:` line
	Retry time.Duration
}

// Append appends the frame and the blank line that ends it. It replaces line ends in ID and
// Name by spaces, so that they cannot add other fields.
func (f Frame) Append(dst []byte) []byte {
	if f.ID != "" {
		dst = appendField(dst, "id: ", f.ID)
	}
	if f.Name != "" {
		dst = appendField(dst, "event: ", f.Name)
	}
	if f.Retry > 0 {
		dst = append(dst, "retry: "...)
		dst = strconv.AppendInt(dst, f.Retry.Milliseconds(), 10)
		dst = append(dst, '\n')
	}
	if f.Data != nil {
		dst = appendData(dst, f.Data)
	}
	return append(dst, '\n')
}

func appendField(dst []byte, key, value string) []byte {
	dst = append(dst, key...)
	for i := range len(value) {
		c := value[i]
		if c == '\n' || c == '\r' || c == 0 {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, '\n')
}

func appendData(dst, data []byte) []byte {
	for {
		line := data
		end := bytes.IndexAny(data, "\r\n")
		if end >= 0 {
			line = data[:end]
		}
		dst = append(dst, "data: "...)
		dst = append(dst, line...)
		dst = append(dst, '\n')
		if end < 0 {
			return dst
		}
		if data[end] == '\r' && end+1 < len(data) && data[end+1] == '\n' {
			end++
		}
		data = data[end+1:]
	}
}
