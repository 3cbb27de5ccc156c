package auth

import (
	"strings"
	"testing"
)

func FuzzReadCode(f *testing.F) {
	for _, s := range []string{"7K3M-9QRT4XWZ0A", " 7k3m - 9qrt-4xwz-oi ", "", "-", "7K3M9QRT4XWZ0A", "ÄÖÜß-ſſſſſſſſſſ"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, typed string) {
		public, code, ok := readCode(typed)
		if !ok {
			return
		}
		if len(public) != publicLen || !strings.HasPrefix(code, public+"-") || len(code) != publicLen+1+secretLen {
			t.Errorf("%q reads as %q, %q", typed, public, code)
		}
		if p, c, ok := readCode(code); !ok || p != public || c != code {
			t.Errorf("%q reads as %q, and that as %q", typed, code, c)
		}
	})
}
