package fullscreen

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"charm.land/bubbles/v2/textarea"

	"loquat/internal/tui"
)

// The widgets in which texts are written make spaces of tabs, and drop control characters and U+FFFD. So they get
// signs of a private plane instead, from which the text comes out as it went in. A text that has such signs itself
// has escapeSign in front of each.
const (
	firstSign  = rune(0x10ff00) // of the character 0
	lostSign   = firstSign + 0xa0
	escapeSign = lostSign + 1
)

// areaLines is the number of lines that a text area has room for. Further line breaks are signs, too.
const areaLines = 10_000

// maxInput is the number of characters of a message that is typed. The server's own limit is
// limits.max_body_bytes.
const maxInput = 4 << 20

var toSigns, fromSigns = signs()

func signs() (there, back *strings.Replacer) {
	var pairs, reversed []string
	pair := func(text, sign string) { pairs, reversed = append(pairs, text, sign), append(reversed, sign, text) }
	for sign := firstSign; sign <= escapeSign; sign++ {
		pair(string(sign), string(escapeSign)+string(sign))
	}
	for r := range lostSign - firstSign {
		if unicode.IsControl(r) && r != '\n' {
			pair(string(r), string(firstSign+r))
		}
	}
	pair("\ufffd", string(lostSign))
	return strings.NewReplacer(pairs...), strings.NewReplacer(append(reversed, string(firstSign+'\n'), "\n")...)
}

// areaText returns a text as an area with a number of free lines keeps it, and lineText as a line does.
func areaText(text string, free int) string {
	text = toSigns.Replace(text)
	if strings.Count(text, "\n") <= free {
		return text
	}
	end := 0
	for range free {
		end += strings.IndexByte(text[end:], '\n') + 1
	}
	return text[:end] + lineBreakSigns(text[end:])
}

func lineText(text string) string { return lineBreakSigns(toSigns.Replace(text)) }

func lineBreakSigns(text string) string {
	return strings.ReplaceAll(text, "\n", string(firstSign+'\n'))
}

// writtenText returns the text of a widget.
func writtenText(value string) string { return fromSigns.Replace(value) }

// setArea replaces the text of an area.
func setArea(a *textarea.Model, text string) {
	a.SetValue(areaText(text, areaLines-1))
}

// insertInto puts a text from elsewhere where the cursor of an area is. It refuses what the area could not keep.
func insertInto(a *textarea.Model, text string) error {
	if err := checkInput(text, utf8.RuneCountInString(a.Value())); err != nil {
		return err
	}
	a.DeleteSelection()
	a.InsertString(areaText(lineFeeds(text), areaLines-a.LineCount()))
	return nil
}

// checkInput says why a text from elsewhere cannot be taken. There are already some characters.
func checkInput(text string, already int) error {
	if !utf8.ValidString(text) {
		return errors.New("the text is not in UTF-8, so it was not taken")
	}
	if n := utf8.RuneCountInString(text) + already; n > maxInput {
		return fmt.Errorf("the text would have %d characters, and %d are allowed here, so it was not taken", n, maxInput)
	}
	return nil
}

// lineFeeds makes all line breaks of a text the same.
func lineFeeds(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// visibleInput replaces the characters of a widget's line that would turn it around, and the signs, by what can be
// seen. The text keeps them.
func visibleInput(line string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == firstSign+'\t':
			return '→'
		case r == firstSign+'\n':
			return '⏎'
		case r == firstSign+'\r':
			return '␍'
		case r >= lostSign && r <= escapeSign:
			return utf8.RuneError
		case r >= firstSign && r < lostSign:
			shown, _ := utf8.DecodeRuneInString(tui.Clean(string(r - firstSign)))
			return shown
		case r != '\x1b' && tui.Clean(string(r)) != string(r):
			return utf8.RuneError
		}
		return r
	}, line)
}
