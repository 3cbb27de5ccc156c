//go:build unix

package data_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/e2e/binary"
	"loquat/internal/migrate/migratetest"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
	"loquat/internal/store/sqlite"
)

// openPlace opens the store of a data directory or a database, as a server does.
func openPlace(t *testing.T, place string) (*store.Store, error) {
	t.Helper()
	var driver store.Driver
	var err error
	if log := slog.New(slog.DiscardHandler); strings.HasPrefix(place, "postgres://") {
		driver, err = postgres.Open(t.Context(), postgres.Options{URL: place, Node: "test", Logger: log})
	} else {
		driver, err = sqlite.Open(t.Context(), place, log)
	}
	if err != nil {
		return nil, err
	}
	s, err := store.Open(t.Context(), driver, store.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return s, nil
}

func useStore(t *testing.T, place string, fn func(*store.Store)) {
	t.Helper()
	s, err := openPlace(t, place)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	fn(s)
}

// folds returns a hash of the state of all sessions that a client computes from all events, and
// the number of events. It fails if a state is not that of the session's snapshot.
func folds(t *testing.T, place string) (sum string, events int) {
	t.Helper()
	useStore(t, place, func(s *store.Store) {
		h := sha256.New()
		fmt.Fprintln(h, s.ID(), s.Last())
		ctx := context.Background()
		state := map[string]*loquat.Fold{}
		for since, more := loquat.EventID(0), true; more; {
			records, err := s.Events(ctx, since, store.Filter{}, store.Bounds{Events: 5000})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range records {
				e, err := r.Decode()
				if err != nil {
					t.Fatal(err)
				}
				f := state[e.SessionID]
				if f == nil {
					f = loquat.NewFold(loquat.Snapshot{Session: loquat.Session{SessionID: e.SessionID}})
					state[e.SessionID] = f
				}
				f.Apply(e)
				since = e.EventID
			}
			events += len(records)
			more = len(records) > 0
		}
		hashSnapshots(t, s, state, h)
		sum = hex.EncodeToString(h.Sum(nil))
	})
	return sum, events
}

// hashSnapshots adds the sessions to h, and compares their messages with the folds.
func hashSnapshots(t *testing.T, s *store.Store, state map[string]*loquat.Fold, h io.Writer) {
	t.Helper()
	err := s.View(context.Background(), func(r *store.Reader) error {
		for after, more := (store.Place{}), true; more; {
			heads, next, err := r.Heads(store.SessionFilter{}, after, 500)
			if err != nil {
				return err
			}
			after, more = next, next != store.Place{}
			for _, head := range heads {
				messages, err := r.Messages(head, head.Rev, 0, -1)
				if err != nil {
					return err
				}
				stored, err := json.Marshal(messages)
				if err != nil {
					return err
				}
				folded, err := json.Marshal(state[head.SessionID].Messages())
				if err != nil {
					return err
				}
				if !bytes.Equal(stored, folded) {
					t.Fatalf("session %s: the snapshot is %s, and the fold %s", head.SessionID, loquat.Clip(string(stored), 500), loquat.Clip(string(folded), 500))
				}
				fmt.Fprintln(h, head.SessionID, head.AgentID, head.Metadata, head.Cursor, head.Checkpoint, head.Rev)
				h.Write(stored)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// migrateTo runs loquat migrate. It returns how long the command ran and its peak memory in MB.
func migrateTo(t *testing.T, from, to string) (took time.Duration, peak int64) {
	t.Helper()
	cmd := migrateCommand(t, from, to)
	began := time.Now()
	out, peak, err := binary.RunWithPeak(cmd)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return time.Since(began), peak / 1e6
}

func migrateCommand(t *testing.T, from, to string) *exec.Cmd {
	t.Helper()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "migrate", "--from", from, "--to", to)
	cmd.Env = binary.CleanEnv()
	return cmd
}

// A store of LOQUAT_MIGRATE_SESSIONS sessions with 104 events each, and increments, goes to PostgreSQL and back.
// The folds of all sessions are equal at each place, and the command needs little memory.
func TestMigration(t *testing.T) {
	sessions := binary.Number(t, "LOQUAT_MIGRATE_SESSIONS", 100)
	const turns = 17 // 104 events without increments
	server := pgtest.Start(t)
	first, second, third := filepath.Join(t.TempDir(), "first"), server.URL("postgres"), filepath.Join(t.TempDir(), "third")
	began := time.Now()
	useStore(t, first, func(s *store.Store) { migratetest.Fill(t, s, sessions, turns) })
	t.Logf("the store of %d sessions was made in %s", sessions, time.Since(began).Round(time.Millisecond))
	want, events := folds(t, first)
	if events < 104*sessions {
		t.Errorf("%d sessions have %d events", sessions, events)
	}
	places := []string{first, second, third}
	for i, to := range places[1:] {
		took, peak := migrateTo(t, places[i], to)
		t.Logf("%d events of %d sessions in %s, %.0f events/s, peak memory %d MB", events, sessions, took.Round(time.Millisecond), float64(events)/took.Seconds(), peak)
		if got, _ := folds(t, to); got != want {
			t.Errorf("the folds in %s differ from those in %s", to, places[i])
		}
		if runtime.GOOS == "linux" && peak > 200 {
			t.Errorf("the command used %d MB", peak)
		}
	}
}

// Moves are killed at any moment. The source stays as it was, or the repeated command completes
// the move. No server uses an incomplete target.
func TestKilledMigration(t *testing.T) {
	t.Parallel()
	rounds := binary.Number(t, "LOQUAT_MIGRATE_ROUNDS", 3)
	server := pgtest.Start(t, "fsync=off")
	dir, database := filepath.Join(t.TempDir(), "data"), ""
	useStore(t, dir, func(s *store.Store) { migratetest.Fill(t, s, 60, 10) })
	want, _ := folds(t, dir)
	for round := range rounds {
		_, database = server.Database(t)
		killUntilMoved(t, dir, database)
		if got, _ := folds(t, database); got != want {
			t.Fatalf("round %d: the folds in the database differ", round)
		}
		dir = filepath.Join(t.TempDir(), fmt.Sprint("data-", round))
		killUntilMoved(t, database, dir)
		if got, _ := folds(t, dir); got != want {
			t.Fatalf("round %d: the folds in the directory differ", round)
		}
	}
}

// killUntilMoved kills moves, and then runs one to its end.
func killUntilMoved(t *testing.T, from, to string) {
	t.Helper()
	cmd := migrateCommand(t, from, to)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	after := time.Duration(rand.IntN(1500)) * time.Millisecond
	killer := time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	killed := cmd.Wait() != nil
	killer.Stop()
	if killed && cmd.ProcessState.ExitCode() >= 0 {
		t.Fatalf("the command failed: %s", &out)
	}
	t.Logf("killed after %s: %t, %s", after, killed, lastLine(out.String()))
	if err := usable(t, to); killed && err == nil && storeIsEmpty(t, to) {
		t.Logf("the command had not yet begun with %s", to)
	} else if killed && err == nil {
		t.Logf("the command had already moved everything to %s", to)
		killed = false
	} else if killed && !errors.Is(err, store.ErrMoving) {
		t.Fatalf("the target can be used: %v", err)
	}
	if err := usable(t, from); err != nil && !errors.Is(err, store.ErrMoving) {
		t.Fatal(err)
	}
	if killed {
		migrateTo(t, from, to)
	}
	if err := usable(t, from); !errors.Is(err, store.ErrMoving) {
		t.Fatalf("the source can still be used: %v", err)
	}
}

// usable returns the error of opening the store of a place.
func usable(t *testing.T, place string) error {
	t.Helper()
	if !strings.HasPrefix(place, "postgres://") && !sqlite.Exists(place) {
		return nil
	}
	s, err := openPlace(t, place)
	if err != nil {
		return err
	}
	return s.Close()
}

func storeIsEmpty(t *testing.T, place string) (empty bool) {
	t.Helper()
	if !strings.HasPrefix(place, "postgres://") && !sqlite.Exists(place) {
		return true
	}
	useStore(t, place, func(s *store.Store) { empty = s.Last() == 0 })
	return empty
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// Servers say why they do not start on a side of a move.
func TestServersDuringAMove(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, "fsync=off")
	from, to := filepath.Join(t.TempDir(), "data"), strings.Replace(server.URL("postgres"), "postgres@", "postgres:hunter2@", 1)
	running := binary.Start(t, nil, "serve", "--demo", "--data", from, "--listen", "127.0.0.1:0")
	if status, _, body := createSession(t, running.URL, "one"); status != 201 {
		t.Fatal(body)
	}
	if code, stderr := binary.Exit(t, "migrate", "--from", from, "--to", to); code != 1 || !strings.Contains(stderr, "is in use by process") {
		t.Errorf("a move from a server that runs: %d, %s", code, stderr)
	}
	if err := running.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	running.Stopped(t)
	file := postgresConfig(t, to)
	second := servePostgres(t, file, filepath.Join(t.TempDir(), "second"))
	if code, stderr := binary.Exit(t, "migrate", "--from", from, "--to", to); code != 1 || !strings.Contains(stderr, "is in use by process") || strings.Contains(stderr, "hunter2") {
		t.Errorf("a move to a server that runs: %d, %s", code, stderr)
	}
	if err := second.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second.Stopped(t)
	if code, stderr := binary.Exit(t, "migrate", "--from", from, "--to", to); code != 0 || strings.Contains(stderr, "hunter2") {
		t.Fatalf("the move: %d, %s", code, stderr)
	}
	if code, stderr := binary.Exit(t, "serve", "--demo", "--data", from, "--listen", "127.0.0.1:0"); code != 1 || !strings.Contains(stderr, "were moved to postgres://postgres:***@") {
		t.Errorf("a server on the source: %d, %s", code, stderr)
	}
	third := servePostgres(t, file, filepath.Join(t.TempDir(), "third"))
	if status, _, body := createSession(t, third.URL, "one"); status != 409 {
		t.Errorf("the session that was moved: %d %s", status, body)
	}
	if status, _, body := createSession(t, third.URL, "two"); status != 201 {
		t.Errorf("a new session: %d %s", status, body)
	}
}
