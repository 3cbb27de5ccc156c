package mcphost

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"loquat"
)

// Bounds of one line of a process.
const (
	maxFrame = 16 << 20  // bytes of a message
	maxLong  = 256 << 20 // bytes of a too long answer that is skipped instead of ending the process
	maxBatch = 1000      // messages
)

// readFrame reads one line and trims it. It replaces an answer that is too long with an
// error for its call.
func (w *wire) readFrame(r *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxFrame+1:
			return w.passOver(r, line, err)
		case err == nil:
			line = bytes.TrimSpace(line)
			if deep := loquat.CheckDepth(line); deep != nil {
				return w.refuseDeep(line, deep)
			}
			return loquat.CleanRaw(line), nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			return nil, io.EOF
		}
	}
}

var errTooLong = fmt.Errorf("it sent a message of more than %d MiB; divide large results", maxFrame>>20)

// passOver reads the rest of a line that is too long, and keeps only the id of the call
// that it answers.
func (w *wire) passOver(r *bufio.Reader, line []byte, err error) ([]byte, error) {
	var e envelope
	e.read(line)
	size := len(line)
	for errors.Is(err, bufio.ErrBufferFull) && size <= maxLong {
		line, err = r.ReadSlice('\n')
		e.read(line)
		size += len(line)
	}
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		return nil, io.EOF
	}
	if err != nil { // longer than maxLong
		return nil, errTooLong
	}
	return w.refusal(e, size, fmt.Sprintf("its answer has more than %d MiB; divide large results", maxFrame>>20), errTooLong)
}

// refuseDeep replaces an answer that nests too deep with an error. Other messages are left
// out and logged.
func (w *wire) refuseDeep(line []byte, deep error) ([]byte, error) {
	var e envelope
	e.read(line)
	if !e.asks {
		return w.refusal(e, len(line), "its answer cannot be used: "+deep.Error(), deep)
	}
	w.say("warning", "one of its messages was left out: "+deep.Error())
	if !w.waste.AllowN(time.Now(), len(line)) {
		return nil, errFlood
	}
	return nil, nil
}

// refusal returns an error answer in place of the answer e, which has size bytes. It
// returns nil if no call waits for the answer, and the error otherwise if e is not an
// answer.
func (w *wire) refusal(e envelope, size int, why string, otherwise error) ([]byte, error) {
	refusal := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%s}}`, e.id, jsonrpc.CodeInternalError, loquat.Quote(why))
	m, bad := jsonrpc.DecodeMessage(refusal)
	answer, ok := m.(*jsonrpc.Response)
	switch {
	case bad != nil || e.asks || !ok || !answer.ID.IsValid():
		return nil, otherwise
	case w.waitsFor(answer.ID):
		return refusal, nil
	case !w.waste.AllowN(time.Now(), size): // the answer to a call that was given up
		return nil, errFlood
	}
	return nil, nil
}

func (w *wire) waitsFor(id jsonrpc.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, ok := w.calls[id]
	return ok
}

// envelope reads the id and method of a JSON-RPC message and skips all other members,
// whatever their size.
type envelope struct {
	id   []byte // raw JSON
	asks bool   // it has a method, so it is not an answer

	depth           int
	quoted, escaped bool
	key             string
	word            []byte // the member's name, then its value if that is a scalar
}

const maxWord = 200

// read takes the next bytes of the message.
func (e *envelope) read(b []byte) {
	for _, c := range b {
		switch {
		case e.escaped:
			e.escaped = false
		case e.quoted && c == '\\':
			e.escaped = true
		case c == '"':
			e.quoted = !e.quoted
		case e.quoted:
		case c == '{' || c == '[':
			e.depth++
			continue
		case e.depth == 1 && c == ':':
			e.key, e.word = string(e.word), nil
			continue
		case e.depth == 1 && (c == ',' || c == '}'):
			e.member()
		}
		if !e.quoted && (c == '}' || c == ']') {
			e.depth--
		}
		if e.depth == 1 && len(e.word) < maxWord && (e.quoted || c > ' ' && c != ',' && c != '}' && c != ']') {
			e.word = append(e.word, c)
		}
	}
}

// member stores a complete member.
func (e *envelope) member() {
	switch e.key {
	case `"id"`:
		e.id = e.word
	case `"method"`:
		e.asks = true
	}
	e.key, e.word = "", nil
}

// messages splits a batch, which an older version of the protocol allows.
func messages(line []byte) ([][]byte, error) {
	if line[0] != '[' {
		return [][]byte{line}, nil
	}
	var out [][]byte
	dec := json.NewDecoder(bytes.NewReader(line))
	for _, err := dec.Token(); dec.More(); {
		var m json.RawMessage
		if err == nil {
			err = dec.Decode(&m)
		}
		if err != nil {
			return [][]byte{line}, nil // the decoder reports the error
		}
		if len(out) == maxBatch {
			return nil, fmt.Errorf("it sent more than %d messages in one batch", maxBatch)
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return [][]byte{line}, nil
	}
	return out, nil
}
