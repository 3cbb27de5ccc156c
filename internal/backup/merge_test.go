package backup

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// merging applies what maintain decides to files that have no bytes.
func merging(all []file, now time.Time, keep time.Duration) []file {
	for _, m := range mergers {
		for _, group := range groups(all, m.from, m.to, m.period, now) {
			all = append(all, merged(group, m.to))
		}
	}
	if group := snapshotDue(all, now, keep); group != nil {
		all = append(all, merged(group, levelSnapshots))
	}
	old := expired(all, now, keep)
	return slices.DeleteFunc(all, func(f file) bool { return slices.Contains(old, f) })
}

func merged(group []file, level int) file {
	size := int64(0)
	for _, f := range group {
		size = max(size, f.size)
	}
	return file{level, group[0].min, group[len(group)-1].max, size}
}

// In weeks of copies, with full copies and pauses between, every time within what is kept can be
// restored, as exactly as promised, and the number of files stays small.
func TestRetention(t *testing.T) {
	const keep = 3 * 24 * time.Hour
	random := rand.New(rand.NewPCG(3, 4))
	var all []file
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now, newest := began, int64(0)
	var taken []int64 // all states there ever were
	full, most, oldest := true, 0, time.Duration(0)
	for day := range 9 {
		for now.Before(began.Add(time.Duration(day+1) * 24 * time.Hour)) {
			now = now.Add(time.Duration(1+random.IntN(40)) * time.Second)
			if random.IntN(3000) == 0 {
				now = now.Add(time.Duration(random.IntN(20)) * time.Hour) // the server rests
			}
			at := now.UnixMilli()
			next := file{levelCopies, newest + 1, at, 100}
			if full = full || random.IntN(20_000) == 0; full {
				next, full = file{levelSnapshots, 1, at, 100_000}, false
			}
			all, newest, taken = append(all, next), at, append(taken, at)
			if random.IntN(5) == 0 {
				all = merging(all, now, keep)
			}
			if random.IntN(2000) == 0 {
				checkStates(t, all, taken, now, keep)
			}
			most = max(most, len(all))
		}
		oldest = max(oldest, now.Sub(time.UnixMilli(reach(all, 1<<62).times[0])))
	}
	if most > 1500 {
		t.Errorf("there were %d files", most)
	}
	if oldest > 2*keep+48*time.Hour {
		t.Errorf("a state is kept for %s", oldest)
	}
}

// checkStates compares the states that can be restored with all that there were.
func checkStates(t *testing.T, all []file, taken []int64, now time.Time, keep time.Duration) {
	t.Helper()
	s := reach(all, 1<<62)
	for _, age := range []time.Duration{0, time.Minute, keepCopies / 2, keepCopies - time.Second, keepMinutes - time.Minute, 6 * time.Hour, 24 * time.Hour, keep - time.Hour} {
		at := now.Add(-age).UnixMilli()
		if at < taken[0] {
			continue
		}
		i, exact := slices.BinarySearch(taken, at)
		if !exact {
			i--
		}
		j, exact := slices.BinarySearch(s.times, at)
		if !exact {
			j--
		}
		if j < 0 {
			t.Fatalf("%s ago: no state can be restored", age)
		}
		apart := time.Hour
		switch {
		case age < keepCopies:
			apart = 0
		case age < keepMinutes:
			apart = time.Minute
		}
		next, _ := slices.BinarySearch(taken, s.times[j]+1) // the oldest state that cannot be restored for this time
		if gap := time.Duration(taken[i]-taken[min(next, i)]) * time.Millisecond; gap > apart || apart == 0 && taken[i] != s.times[j] {
			t.Fatalf("%s ago: the changes of %s cannot be restored", age, gap)
		}
		if chain := s.chain(s.times[j]); !chain[0].snapshot() || len(chain) > maxInputs*4 {
			t.Fatalf("%s ago: a chain of %d files", age, len(chain))
		}
	}
}

// States are found over chains that overlap and that end, and names of other files count as nothing.
func TestReach(t *testing.T) {
	all := []file{
		{levelSnapshots, 1, 10, 0}, {levelCopies, 11, 20, 0}, {levelCopies, 21, 30, 0}, {levelMinutes, 11, 30, 0},
		{levelCopies, 11, 25, 0}, {levelCopies, 26, 29, 0}, // of a second follower
		{levelCopies, 41, 50, 0}, // what it follows is gone
		{levelSnapshots, 1, 60, 0}, {levelCopies, 61, 70, 0},
	}
	s := reach(all, 1<<62)
	if want := []int64{10, 20, 25, 29, 30, 60, 70}; !slices.Equal(s.times, want) {
		t.Errorf("the states are %v, want %v", s.times, want)
	}
	if chain := s.chain(30); len(chain) != 2 || chain[1].level != levelMinutes {
		t.Errorf("the chain is %v", chain)
	}
	if got := reach(all, 28).newest(); got != 25 {
		t.Errorf("the newest state up to 28 is %d", got)
	}
	if chain := s.chain(50); chain != nil {
		t.Errorf("a state that cannot be restored has the chain %v", chain)
	}
	for name, good := range map[string]bool{
		"ltx/0/0000000000000002-0000000000000003.ltx":   true,
		"ltx/9/0000000000000001-0000000000000003.ltx":   true,
		"ltx/0/0000000000000000-0000000000000003.ltx":   false,
		"ltx/0/0000000000000004-0000000000000003.ltx":   false,
		"ltx/0/0000000000000001-ffffffffffffffff.ltx":   false,
		"ltx/5/0000000000000002-0000000000000003.ltx":   false,
		"ltx/x/0000000000000002-0000000000000003.ltx":   false,
		"ltx/0/x/0000000000000002-0000000000000003.ltx": false,
		"ltx/0/notes.txt": false,
		"loquat.json":     false,
	} {
		f, ok := parseFile(name, 7)
		if ok != good || ok && f.name() != name {
			t.Errorf("%s: %v %t", name, f, ok)
		}
	}
}
