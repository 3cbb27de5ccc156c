package tui

import (
	"strings"
	"testing"

	"rsc.io/qr"
)

// The drawing has the same modules as the code.
func TestQR(t *testing.T) {
	const text = "https://chat.example.org/#pair=7K3M-9QRT4XWZ0A"
	code, err := qr.Encode(text, qr.L)
	if err != nil {
		t.Fatal(err)
	}
	for _, look := range []Look{{}, {Terminal: true, Color: true}} {
		drawn, err := QR(text, look)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(drawn, "\x1b") != look.Color {
			t.Errorf("%+v: the drawing has colours: %v", look, !look.Color)
		}
		lines := strings.Split(strings.TrimSuffix(strings.NewReplacer("\x1b[38;5;231;48;5;16m", "", "\x1b[0m", "").Replace(drawn), "\n"), "\n")
		for y := -quietZone; y < code.Size+quietZone; y++ {
			row := []rune(lines[(y+quietZone)/2])
			if len(row) != code.Size+2*quietZone {
				t.Fatalf("line %d has %d columns", y/2, len(row))
			}
			for x, r := range row {
				upper := (y+quietZone)%2 == 0
				light := r == '█' || r == '▀' && upper || r == '▄' && !upper
				if light == code.Black(x-quietZone, y) {
					t.Fatalf("module %d, %d is wrong", x-quietZone, y)
				}
			}
		}
	}
	if _, err := QR(strings.Repeat("x", 5000), Look{}); err == nil {
		t.Error("QR encodes a text that is too long")
	}
}
