package heap

import (
	"runtime/debug"
	"testing"
)

func gcPercent() int {
	n := debug.SetGCPercent(100)
	debug.SetGCPercent(n)
	return n
}

// The collector runs more often while at least one large text is held, and as before after
// the last one.
func TestHold(t *testing.T) {
	for _, c := range []struct{ before, while int }{{100, percent}, {percent, percent}, {5, 5}, {-1, -1}} {
		old := debug.SetGCPercent(c.before)
		first, second := Hold(), Hold()
		first()
		first() // a second call does nothing
		if got := gcPercent(); got != c.while {
			t.Errorf("with GOGC=%d it is %d while a text is held, want %d", c.before, got, c.while)
		}
		second()
		if got := gcPercent(); got != c.before {
			t.Errorf("with GOGC=%d it is %d afterwards", c.before, got)
		}
		debug.SetGCPercent(old)
	}
}

// A gauge holds from the size of a large text on, until it is reset.
func TestGauge(t *testing.T) {
	old := debug.SetGCPercent(100)
	defer debug.SetGCPercent(old)
	var g Gauge
	for _, c := range []struct{ add, want int }{{Large - 1, 100}, {1, percent}, {Large, percent}} {
		g.Add(c.add)
		if got := gcPercent(); got != c.want {
			t.Errorf("after %d bytes it is %d, want %d", g.size, got, c.want)
		}
	}
	g.Reset()
	g.Reset()
	if got := gcPercent(); got != 100 {
		t.Errorf("after Reset it is %d", got)
	}
	g.Add(Large - 1)
	if got := gcPercent(); got != 100 {
		t.Errorf("a new text below the size makes it %d", got)
	}
	g.Reset()
}
