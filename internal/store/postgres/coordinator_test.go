//go:build unix

package postgres_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

// near fails unless a duration is at most a second below another one.
func near(t *testing.T, what string, got, want time.Duration) {
	t.Helper()
	if got > want || got < want-time.Second {
		t.Errorf("%s: %s, want %s", what, got, want)
	}
}

// Debts of many callers add up, and shrink with the time.
func TestDebts(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	_, db := openStore(t, postgres.Options{URL: url, PoolSize: 4})
	conn := connect(t, url)
	exec(t, conn, "INSERT INTO debts VALUES ('over', clock_timestamp() - interval '1 second')")
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for range 10 {
				keys := []string{"a", "b", fmt.Sprint("c", i)}
				if i%2 == 0 {
					slices.Reverse(keys)
				}
				if _, err := db.AddDebts(t.Context(), keys, []time.Duration{time.Minute, time.Minute, time.Minute}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	sums, err := db.AddDebts(t.Context(), []string{"c3", "a", "new"}, []time.Duration{0, time.Minute, time.Second})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "own key", sums[0], 10*time.Minute)
	near(t, "common key", sums[1], 81*time.Minute)
	near(t, "new key", sums[2], time.Second)
	exec(t, conn, "UPDATE debts SET until = until - interval '2 hours'")
	sums, err = db.AddDebts(t.Context(), []string{"a"}, []time.Duration{time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	near(t, "after two hours", sums[0], time.Minute)

	var left int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM debts WHERE key = 'over'").Scan(&left); err != nil || left != 0 {
		t.Errorf("%d debts that were over are left, %v", left, err)
	}
}

// Slots are one interval apart, whoever reserves them. Starts are at least one interval apart,
// whoever takes them and however late.
func TestSlots(t *testing.T) {
	t.Parallel()
	_, url := pgtest.Shared(t).Database(t)
	_, db := openStore(t, postgres.Options{URL: url})
	reserve := func(scope string, interval time.Duration) time.Duration {
		t.Helper()
		wait, err := db.ReserveSlot(t.Context(), scope, interval)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	take := func(scope string, interval time.Duration) time.Duration {
		t.Helper()
		wait, err := db.TakeSlot(t.Context(), scope, interval)
		if err != nil {
			t.Fatal(err)
		}
		return wait
	}
	end := func(scope string) {
		t.Helper()
		if err := db.EndStart(t.Context(), scope); err != nil {
			t.Fatal(err)
		}
	}
	const minute, hour = time.Minute, time.Hour
	for i := range 3 {
		near(t, "slot of the minute", reserve("m", minute), time.Duration(i)*minute)
	}
	near(t, "slot of another scope", reserve("h", hour), 0)
	near(t, "first start", take("m", minute), 0)
	near(t, "while it has not ended", take("m", 2*time.Second), 2*time.Second)
	exec(t, connect(t, url), "UPDATE slots SET started_at = '-infinity', starting_until = clock_timestamp() + interval '3 seconds' WHERE started_at > '-infinity'")
	near(t, "while the start of a node that died has not ended", take("m", minute), 3*time.Second)
	end("m")
	near(t, "second start", take("m", minute), minute)
	near(t, "with a shorter interval", take("m", 10*time.Second), 10*time.Second)
	near(t, "start in another scope", take("h", hour), 0)
	near(t, "slot after the start", reserve("h", hour), hour)
	near(t, "a shorter interval does not wait for the longer one's slots", reserve("h", time.Second), time.Second)

	if err := db.Pause(t.Context(), "m", 30*time.Second); err != nil {
		t.Fatal(err)
	}
	if err := db.Pause(t.Context(), "m", 10*time.Second); err != nil { // it does not shorten the first
		t.Fatal(err)
	}
	near(t, "start in a pause", take("m", time.Millisecond), 30*time.Second)
	if err := db.Pause(t.Context(), "p", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	near(t, "slot in a pause", reserve("p", time.Second), 20*time.Second)
	near(t, "next slot in a pause", reserve("p", time.Second), 21*time.Second)

	exec(t, connect(t, url), "UPDATE slots SET slot_at = clock_timestamp() + interval '1 day', started_at = slot_at + interval '1 day', paused_until = slot_at + interval '1 day'")
	near(t, "after the clock of the database was set back, a slot", reserve("m", time.Second), 0)
	near(t, "and a start", take("m", time.Second), 0)
	near(t, "and the next start", take("m", time.Second), time.Second)

	exec(t, connect(t, url), "TRUNCATE slots")
	for range 3 {
		if wait := take("m", minute); wait == 0 {
			break
		} else if wait > time.Second {
			t.Errorf("after the table was emptied: %s", wait)
		}
	}
	near(t, "after a start in the empty table", take("m", minute), minute)
}
