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

// The bounds of one line that a process sends.
const (
	maxFrame = 16 << 20  // bytes of a message
	maxLong  = 256 << 20 // bytes of an answer that is passed over, as too long
	maxBatch = 1000      // messages
)

// readFrame reads one line, without the space around it. In the place of an answer that
// is too long comes a refusal for the call that it is for.
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

var errTooLong = fmt.Errorf("it sent a message of more than %d MiB; large results have to be divided", maxFrame>>20)

// passOver reads the rest of a line that is too long, whose beginning is given, and
// keeps of it only which call it answers.
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
	return w.refusal(e, size, fmt.Sprintf("its answer has more than %d MiB; large results have to be divided", maxFrame>>20), errTooLong)
}

// refuseDeep puts a refusal in the place of an answer that nests too deep. What is no
// answer is left out, and the log says so.
func (w *wire) refuseDeep(line []byte, deep error) ([]byte, error) {
	var e envelope
	e.read(line)
	if !e.asks {
		return w.refusal(e, len(line), "its answer cannot be used: "+deep.Error(), deep)
	}
	w.say("warning", "a message of it was left out: "+deep.Error())
	if !w.waste.AllowN(time.Now(), len(line)) {
		return nil, errFlood
	}
	return nil, nil
}

// refusal returns an answer that says why the one in e cannot be taken, of so many bytes;
// nothing when nobody waits for it. The error is otherwise, when e is no answer.
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

// envelope reads the members of a JSON object that say what a message is, and passes
// over all others, whatever their size.
type envelope struct {
	id   []byte // as it came
	asks bool   // it has a method, so that it is no answer

	depth           int
	quoted, escaped bool
	key             string
	word            []byte // the member's name, then its value, unless that is no plain one
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

// member notes a member that has ended.
func (e *envelope) member() {
	switch e.key {
	case `"id"`:
		e.id = e.word
	case `"method"`:
		e.asks = true
	}
	e.key, e.word = "", nil
}

// messages divides a batch, which one older version of the protocol knows.
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
			return [][]byte{line}, nil // what it is, its decoder says
		}
		if len(out) == maxBatch {
			return nil, fmt.Errorf("it sent more than %d messages as one", maxBatch)
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return [][]byte{line}, nil
	}
	return out, nil
}
