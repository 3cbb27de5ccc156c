package tui

import (
	"fmt"
	"strings"

	"rsc.io/qr"
)

// quietZone is the width of the light border in modules. Cameras need a border to find the
// code.
const quietZone = 2

// QR returns a QR code in half blocks, with two rows of modules per line. With colours the
// code is black on white. Without colours it assumes a dark terminal.
func QR(text string, look Look) (string, error) {
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		return "", fmt.Errorf("create a QR code: %w", err)
	}
	begin, end := "", "\n"
	if look.Color {
		begin, end = "\x1b[38;5;231;48;5;16m", "\x1b[0m\n"
	}
	var b strings.Builder
	for y := -quietZone; y < code.Size+quietZone; y += 2 {
		b.WriteString(begin)
		for x := -quietZone; x < code.Size+quietZone; x++ {
			// Black returns false outside of the code, so the border is light.
			switch top, bottom := !code.Black(x, y), !code.Black(x, y+1); {
			case top && bottom:
				b.WriteRune('█')
			case top:
				b.WriteRune('▀')
			case bottom:
				b.WriteRune('▄')
			default:
				b.WriteRune(' ')
			}
		}
		b.WriteString(end)
	}
	return b.String(), nil
}
