//go:build unix

package migrate_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"loquat"
	"loquat/internal/asset"
	"loquat/internal/asset/files"
	"loquat/internal/asset/s3"
	"loquat/internal/asset/s3/s3test"
	"loquat/internal/images"
	"loquat/internal/migrate"
	"loquat/internal/migrate/migratetest"
	"loquat/internal/search"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
	"loquat/internal/store/sqlite"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		pgtest.StopShared()
		os.Exit(code)
	}))
}

var quiet = slog.New(slog.DiscardHandler)

// open opens the store of a place, as a server does.
func open(t testing.TB, p migrate.Place) (*store.Store, error) {
	t.Helper()
	var driver store.Driver
	var err error
	if p.URL != "" {
		driver, err = postgres.Open(context.Background(), postgres.Options{URL: p.URL, Node: "test", Logger: quiet})
	} else {
		driver, err = sqlite.Open(context.Background(), p.Dir, quiet)
	}
	if err != nil {
		return nil, err
	}
	s, err := store.Open(context.Background(), driver, store.Options{Logger: quiet})
	if err != nil {
		return nil, errors.Join(err, driver.Close())
	}
	return s, nil
}

// with runs fn on the store of a place.
func with(t testing.TB, p migrate.Place, fn func(*store.Store)) {
	t.Helper()
	s, err := open(t, p)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	fn(s)
}

func directory(t testing.TB) migrate.Place {
	return migrate.Place{Dir: filepath.Join(t.TempDir(), "data")}
}

func database(t testing.TB) migrate.Place {
	_, url := pgtest.Shared(t).Database(t)
	return migrate.Place{URL: url}
}

func run(t testing.TB, from, to migrate.Place) migrate.Report {
	t.Helper()
	r, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// fails runs a move and returns the text of its error.
func fails(t testing.TB, from, to migrate.Place) string {
	t.Helper()
	_, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Logger: quiet})
	if err == nil {
		t.Fatalf("the move from %s to %s succeeded", from, to)
	}
	return err.Error()
}

// content is all that clients see of a store, as text.
func content(t testing.TB, s *store.Store) (lines []string) {
	t.Helper()
	ctx := context.Background()
	lines = append(lines, fmt.Sprintf("store %s, server %s, last %s", s.ID(), s.ServerID(), s.Last()))
	err := s.View(ctx, func(r *store.Reader) error {
		heads, _, err := r.Heads(store.SessionFilter{}, store.Place{}, 100_000)
		if err != nil {
			return err
		}
		for _, h := range heads {
			messages, err := r.Messages(h, h.Rev, 0, -1)
			if err != nil {
				return err
			}
			lines = append(lines, fmt.Sprintf("session %q agent %q %s rev %d cursor %s checkpoint %s", h.SessionID, h.AgentID, h.Metadata, h.Rev, h.Cursor, h.Checkpoint))
			for _, m := range messages {
				lines = append(lines, fmt.Sprintf("message %q %s %s %s %d", m.ID, m.Role, m.CreatedAt, m.Metadata, len(m.Content)), m.Content)
			}
		}
		state, err := r.PluginState("notes")
		lines = append(lines, fmt.Sprintf("plugin %s", state))
		answer, found, replayErr := r.Replay("key \x00", "POST", "/sessions", time.Now())
		lines = append(lines, fmt.Sprintf("answer %v %v", answer, found))
		unended, requestErr := r.Unended(nil)
		for _, q := range unended {
			lines = append(lines, fmt.Sprintf("request %q %s %s", q.RequestID, q.Status, q.Send))
		}
		return errors.Join(err, replayErr, requestErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	credentials, err := s.LoadCredentials(ctx)
	if err != nil {
		t.Fatal(err)
	}
	lines = append(lines, fmt.Sprintf("credentials %v, codes %v", credentials.Credentials, credentials.Codes))
	for since, more := loquat.EventID(0), true; more; {
		records, err := s.Events(ctx, since, store.Filter{}, store.Bounds{Events: 1000})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			lines, since = append(lines, fmt.Sprintf("event %s %s %d %t %s", r.ID, r.Type, r.Rev, r.OmitMessages, r.Body)), r.ID
		}
		more = len(records) > 0
	}
	return lines
}

// same compares two contents.
func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		a, b := "nothing", "nothing"
		if i < len(got) {
			a = got[i]
		}
		if i < len(want) {
			b = want[i]
		}
		if a != b {
			t.Fatalf("%s, line %d: %s, want %s", what, i, loquat.Clip(a, 300), loquat.Clip(b, 300))
		}
	}
}

// addImages adds images of different sizes to a session of a directory. Two have the same bytes.
func addImages(t *testing.T, p migrate.Place, s *store.Store, session string) (list []loquat.Asset) {
	t.Helper()
	dir, err := files.Open(filepath.Join(p.Dir, "assets"))
	if err != nil {
		t.Fatal(err)
	}
	for i, size := range []int{1, 100, 100, postgres.PieceSize, postgres.PieceSize + 1, 3*postgres.PieceSize - 1} {
		body := bytes.Repeat([]byte("image"), size/5+1)[:size]
		sum := sha256.Sum256(body)
		a := loquat.Asset{AssetID: fmt.Sprint("asset-", i), SHA256: hex.EncodeToString(sum[:]), MediaType: "image/png", Size: int64(size), Name: "\x00.png"}
		path := filepath.Join(p.Dir, "upload")
		if err := os.WriteFile(path, body, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := dir.Put(t.Context(), a.SHA256, asset.FileUpload(path, a.SHA256, a.Size)); err != nil {
			t.Fatal(err)
		}
		err := s.Update(t.Context(), func(tx *store.Tx) error {
			h, err := tx.Head(session)
			if err != nil {
				return err
			}
			return tx.AddAsset(h, a)
		})
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

// A store goes to PostgreSQL and back, and shows the same at each place. Its next event follows
// its last, and the places that it has left refuse to be used.
func TestBothWays(t *testing.T) {
	t.Parallel()
	first, second, third := directory(t), database(t), directory(t)
	var before []string
	var pictures []loquat.Asset
	with(t, first, func(s *store.Store) {
		migratetest.Fill(t, s, 20, 3)
		migratetest.AddEverything(t, s)
		pictures = addImages(t, first, s, "edited")
		before = content(t, s)
	})
	r := run(t, first, second)
	if r.Images != 5 || r.Sessions != 27 || r.Rows == 0 || r.Bytes < 53<<20 {
		t.Errorf("the report is %+v", r)
	}
	var there []string
	with(t, second, func(s *store.Store) {
		same(t, "in the database", content(t, s), before)
		last := s.Last()
		add(t, s, "there")
		if s.Last() != last+12 {
			t.Errorf("12 events after %s end at %s", last, s.Last())
		}
		there = content(t, s)
	})
	haveImages(t, second, nil, pictures)
	if _, err := open(t, first); !errors.Is(err, store.ErrMoving) || !strings.Contains(err.Error(), "were moved to postgres://") || !strings.Contains(err.Error(), "--reopen") {
		t.Errorf("the directory that was left: %v", err)
	}
	run(t, second, third)
	for _, a := range pictures {
		if err := files.Verify(filepath.Join(third.Dir, "assets"), a.SHA256, a.Size, true); err != nil {
			t.Errorf("image %s of %d bytes: %v", a.AssetID, a.Size, err)
		}
	}
	with(t, third, func(s *store.Store) {
		same(t, "in the second directory", content(t, s), there)
		add(t, s, "after")
	})
	if _, err := open(t, second); !errors.Is(err, store.ErrMoving) || !strings.Contains(err.Error(), "were moved to "+third.Dir) {
		t.Errorf("the database that was left: %v", err)
	}
}

// The titles and messages of a moved store can be found, also those that wait for the index.
func TestMovedSessionsAreFound(t *testing.T) {
	const sessions = 30
	places := []migrate.Place{directory(t), database(t), directory(t)}
	with(t, places[0], func(s *store.Store) { migratetest.Fill(t, s, sessions, 3) })
	found := func(s *store.Store, text, part string) (n int) {
		q, err := search.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		list, err := store.Read(t.Context(), s, func(r *store.Reader) ([]store.Found, error) {
			list, _, complete, err := r.SearchSessions(store.SearchFilter{Query: q, Text: true}, store.SearchPlace{}, 2*sessions)
			if !complete {
				t.Errorf("the search for %q is incomplete", text)
			}
			return list, err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			if f.Part == part {
				n++
			}
		}
		return n
	}
	for i, p := range places {
		if i > 0 {
			run(t, places[i-1], p)
		}
		with(t, p, func(s *store.Store) {
			for _, what := range []string{"waiting", "indexed"} {
				if titles, texts := found(s, "about", loquat.PartTitle), found(s, "what", loquat.PartText); titles != sessions || texts != sessions {
					t.Errorf("%s, %s: %d titles and the texts of %d sessions are found, want %d", p, what, titles, texts, sessions)
				}
				for n := 1; n > 0; {
					var err error
					if n, err = s.IndexSome(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

// haveImages requires that a server with a database, and perhaps an object store, can read images.
func haveImages(t *testing.T, p migrate.Place, objects asset.Store, list []loquat.Asset) {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{URL: p.URL, Node: "test", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), db, store.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if objects == nil {
		objects = db.Images()
	}
	keeper := images.NewShared(images.SharedOptions{Store: s, Bytes: objects, Logger: quiet})
	for _, a := range list {
		f, err := keeper.Open(t.Context(), a.SHA256, a.Size)
		if err != nil {
			t.Errorf("image %s of %d bytes: %v", a.AssetID, a.Size, err)
			continue
		}
		sum := sha256.New()
		if _, err := io.Copy(sum, f); err != nil || hex.EncodeToString(sum.Sum(nil)) != a.SHA256 {
			t.Errorf("image %s of %d bytes has other bytes: %v", a.AssetID, a.Size, err)
		}
		f.Close()
	}
}

// objects is an object store that counts the objects that are stored.
type objects struct {
	asset.Store
	stored, least int
	stop          error // of all further Puts, when least are stored; nil: they succeed
}

func (o *objects) Put(ctx context.Context, name string, u *asset.Upload) error {
	if o.stop != nil && o.stored >= o.least {
		return o.stop
	}
	o.stored++
	return o.Store.Put(ctx, name, u)
}

// Images go to an object store and back. A repeated move uses the objects that are there. An image
// that is not there, or is damaged, is not moved, and the source can be used.
func TestImagesInAnObjectStore(t *testing.T) {
	server := s3test.Start(t)
	bucket, err := s3.Open(t.Context(), server.Options(t, "moved", server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	first, second, third := directory(t), database(t), directory(t)
	var before []string
	var pictures []loquat.Asset
	with(t, first, func(s *store.Store) {
		migratetest.Fill(t, s, 2, 2)
		add(t, s, "pictures")
		pictures = addImages(t, first, s, "pictures")
		before = content(t, s)
	})
	o := &objects{Store: bucket, least: 2, stop: errors.New("the bucket is full")}
	move := func(from, to migrate.Place, o asset.Store) (migrate.Report, error) {
		return migrate.Run(t.Context(), migrate.Options{From: from, To: to, Objects: o, Logger: quiet})
	}
	if _, err := move(first, second, o); !errors.Is(err, o.stop) {
		t.Fatal(err)
	}
	with(t, first, func(s *store.Store) { same(t, "the source", content(t, s), before) })
	o.stop = nil
	r, err := move(first, second, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Images != 5 || o.stored != 5 {
		t.Errorf("%d images are %d new objects after 2 of an interrupted move, want 5 and 5 in all", r.Images, o.stored)
	}
	with(t, second, func(s *store.Store) { same(t, "the database", content(t, s), before) })
	haveImages(t, second, bucket, pictures)

	if text := fails(t, second, third); !strings.Contains(text, "--assets") {
		t.Errorf("without the object store: %s", text)
	}
	elsewhere, err := s3.Open(t.Context(), server.Options(t, "elsewhere", server.Addr))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := move(second, third, elsewhere); err == nil || !strings.Contains(err.Error(), "--assets must be the assets.url") {
		t.Errorf("with another object store: %v", err)
	}
	largest := pictures[len(pictures)-1]
	file := server.Objects("moved/*-" + largest.SHA256 + "-*")[0]
	body, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	replace := func(with []byte) {
		if err := os.WriteFile(file, with, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	replace(bytes.ToUpper(body))
	if _, err := move(second, third, bucket); err == nil || !strings.Contains(err.Error(), "damaged") || !strings.Contains(err.Error(), largest.SHA256) {
		t.Errorf("a damaged object: %v", err)
	}
	replace(body)
	if _, err := move(second, third, bucket); err != nil {
		t.Fatal(err)
	}
	for _, a := range pictures {
		if err := files.Verify(filepath.Join(third.Dir, "assets"), a.SHA256, a.Size, true); err != nil {
			t.Errorf("image %s of %d bytes: %v", a.AssetID, a.Size, err)
		}
	}
	with(t, third, func(s *store.Store) { same(t, "the second directory", content(t, s), before) })
}

// A store without anything can be moved, too.
func TestEmptyStore(t *testing.T) {
	from, to, back := directory(t), database(t), directory(t)
	var id string
	with(t, from, func(s *store.Store) { id = s.ID() })
	if r := run(t, from, to); r.Rows != 0 {
		t.Errorf("the report is %+v", r)
	}
	run(t, to, back)
	with(t, back, func(s *store.Store) {
		if s.ID() != id {
			t.Errorf("the id of the log changed from %s to %s", id, s.ID())
		}
		migratetest.Fill(t, s, 2, 1)
	})
}

// A place that was left can be used again, with a log of its own.
func TestReopen(t *testing.T) {
	from, to := directory(t), database(t)
	with(t, from, func(s *store.Store) { migratetest.Fill(t, s, 2, 1) })
	if err := migrate.Reopen(t.Context(), from, quiet); err == nil || !strings.Contains(err.Error(), "was not moved") {
		t.Errorf("a store in use was reopened: %v", err)
	}
	run(t, from, to)
	var id string
	var last loquat.EventID
	with(t, to, func(s *store.Store) { id, last = s.ID(), s.Last() })
	if err := migrate.Reopen(t.Context(), from, quiet); err != nil {
		t.Fatal(err)
	}
	with(t, from, func(s *store.Store) {
		if s.ID() == id || s.ServerID() != id || s.Last() <= last || !s.Foreign(last+1) {
			t.Errorf("the reopened store %s continues the log %s: last %s after %s", s.ID(), id, s.Last(), last)
		}
	})
}

// A backup that was never started is moved as a backup: the first start gives it a log of its own.
func TestCopyIsMoved(t *testing.T) {
	from, to := directory(t), database(t)
	var id string
	with(t, from, func(s *store.Store) { migratetest.Fill(t, s, 2, 1); id = s.ID() })
	db, err := sqlite.Open(t.Context(), from.Dir, quiet)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Write(t.Context(), func(q store.SQL) error {
		_, _, err := store.MarkCopy(q)
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	run(t, from, to)
	with(t, to, func(s *store.Store) {
		if s.ID() == id || s.ServerID() != id {
			t.Errorf("the copy of %s has the log %s of server %s", id, s.ID(), s.ServerID())
		}
	})
}

// stopAt cancels a move at a step.
func stopAt(t *testing.T, from, to migrate.Place, step string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := migrate.Run(ctx, migrate.Options{From: from, To: to, Logger: quiet, Progress: func(p migrate.Progress) {
		if strings.HasPrefix(p.Step, step) {
			cancel()
		}
	}})
	if err == nil {
		t.Fatalf("the move that was cancelled while %s succeeded", step)
	}
}

// A move that is cancelled changes neither side, and can be repeated.
func TestCancelled(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"checking", "copying", "building", "comparing the rows", "comparing the sessions", "comparing the log"} {
		t.Run(step, func(t *testing.T) {
			from, to, back := directory(t), database(t), directory(t)
			var before []string
			with(t, from, func(s *store.Store) { migratetest.Fill(t, s, 5, 3); before = content(t, s) })
			stopAt(t, from, to, step)
			with(t, from, func(s *store.Store) { same(t, "the source", content(t, s), before) })
			run(t, from, to)
			with(t, to, func(s *store.Store) { same(t, "the database", content(t, s), before) })
			stopAt(t, to, back, step)
			if sqlite.Exists(back.Dir) {
				t.Error("the directory has an incomplete database")
			}
			run(t, to, back)
			with(t, back, func(s *store.Store) { same(t, "the directory", content(t, s), before) })
		})
	}
}

// A move that fails in its last step can be repeated, although the source already says that it was moved.
func TestLastStepFails(t *testing.T) {
	failAtTheEnd := func(t *testing.T, from, to migrate.Place, spoil func()) {
		t.Helper()
		_, err := migrate.Run(t.Context(), migrate.Options{From: from, To: to, Logger: quiet, Progress: func(p migrate.Progress) {
			if strings.HasPrefix(p.Step, "comparing the log") {
				spoil()
			}
		}})
		if err == nil || !strings.Contains(err.Error(), "run the same command again") {
			t.Fatalf("the move ends with %v", err)
		}
		if _, err := open(t, to); !errors.Is(err, store.ErrMoving) {
			t.Errorf("the target can be used: %v", err)
		}
	}
	from, to, back := directory(t), database(t), directory(t)
	var before []string
	with(t, from, func(s *store.Store) { migratetest.Fill(t, s, 3, 2); before = content(t, s) })
	failAtTheEnd(t, from, to, func() { execute(t, to, `UPDATE log SET epoch = epoch + 1`) }) // as another node does
	run(t, from, to)
	with(t, to, func(s *store.Store) { same(t, "the database", content(t, s), before) })
	failAtTheEnd(t, to, back, func() {
		if err := os.RemoveAll(filepath.Join(back.Dir, "loquat.db-shm")); err != nil {
			t.Fatal(err)
		}
	})
	run(t, to, back)
	with(t, back, func(s *store.Store) { same(t, "the directory", content(t, s), before) })
}

// execute runs a statement in a database.
func execute(t *testing.T, p migrate.Place, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), statement)
	if err := errors.Join(err, conn.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// say makes a store say something about a move.
func say(t *testing.T, p migrate.Place, m store.Move) {
	t.Helper()
	var driver store.Driver
	var err error
	if p.URL != "" {
		driver, err = postgres.Open(t.Context(), postgres.Options{URL: p.URL, Node: "say", Logger: quiet})
	} else {
		driver, err = sqlite.Open(t.Context(), p.Dir, quiet)
	}
	if err != nil {
		t.Fatal(err)
	}
	err = driver.Write(t.Context(), func(q store.SQL) error { return store.SetMove(q, m) })
	if err := errors.Join(err, driver.Close()); err != nil {
		t.Fatal(err)
	}
}

// A process that died between the last two steps leaves two sides that nobody can use. The
// repeated move completes them. Repeated once more, it says that nothing is left to do.
func TestDiedBeforeTheLastStep(t *testing.T) {
	t.Parallel()
	places := func(t *testing.T) (from, to migrate.Place, id string, before []string) {
		from, to = directory(t), database(t)
		with(t, from, func(s *store.Store) { migratetest.Fill(t, s, 3, 2); id, before = s.ID(), content(t, s) })
		return from, to, id, before
	}
	t.Run("to a database", func(t *testing.T) {
		from, to, id, before := places(t)
		say(t, to, store.Move{Kind: store.Incoming, Store: id, Place: from.String()})
		say(t, from, store.Move{Kind: store.Moved, Store: id, Place: to.String()})
		for _, p := range []migrate.Place{from, to} {
			if _, err := open(t, p); !errors.Is(err, store.ErrMoving) {
				t.Errorf("%s can be used: %v", p, err)
			}
		}
		run(t, from, to)
		with(t, to, func(s *store.Store) { same(t, "the database", content(t, s), before) })
		if r := run(t, from, to); !r.Again {
			t.Errorf("the third move: %+v", r)
		}
	})
	t.Run("to a directory", func(t *testing.T) {
		source, from, id, before := places(t)
		run(t, source, from)
		to := directory(t)
		with(t, to, func(s *store.Store) { migratetest.Fill(t, s, 1, 1) }) // a part of it
		say(t, to, store.Move{Kind: store.Incoming, Store: id, Place: from.String()})
		say(t, from, store.Move{Kind: store.Moved, Store: id, Place: to.String()})
		if text := fails(t, from, directory(t)); !strings.Contains(text, "were moved to "+to.Dir) {
			t.Errorf("a move to another directory: %s", text)
		}
		run(t, from, to)
		with(t, to, func(s *store.Store) { same(t, "the directory", content(t, s), before) })
		if r := run(t, from, to); !r.Again {
			t.Errorf("the third move: %+v", r)
		}
	})
}

// Every table of both schemas is moved, or is known to be needed by running servers only.
func TestAllTablesAreMoved(t *testing.T) {
	// What is not moved as rows: the log has a statement of its own, loquat_schema describes the
	// schema, nodes and revisions belong to servers that run, and image_objects and image_pieces
	// have the bytes of images, which a data directory has in files. What nodes coordinate for
	// seconds or minutes is not worth a move, and no call runs during one. The search index is made again from the messages.
	left := []string{"log", "loquat_schema", "search_index", "search_index_data", "search_index_idx", "search_index_docsize", "search_index_config", "search_queue", "search_state", "image_objects", "image_pieces", "nodes", "revisions", "debts", "slots", "meter_calls"}
	var moved []string
	for _, table := range store.Tables {
		moved = append(moved, table.Name)
	}
	dir, db := directory(t), database(t)
	with(t, dir, func(*store.Store) {})
	with(t, db, func(*store.Store) {})
	for _, c := range []struct {
		place migrate.Place
		query string
	}{
		{dir, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'`},
		{db, `SELECT relname::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace`},
	} {
		for _, table := range query(t, c.place, c.query) {
			if !slices.Contains(moved, table) && !slices.Contains(left, table) {
				t.Errorf("%s: the table %s is not in store.Tables; add it, or say here why it is not moved", c.place, table)
			}
		}
	}
	// The columns of the log that belong to the database.
	own := []string{"moving", "place", "epoch", "unsorted_entries", "unsorted_bytes", "timeline", "cuts", "notice_key"}
	for _, c := range []struct {
		place migrate.Place
		query string
	}{
		{dir, `SELECT name FROM pragma_table_info('log')`},
		{db, `SELECT attname::text FROM pg_attribute WHERE attrelid = 'log'::regclass AND attnum > 0 AND NOT attisdropped`},
	} {
		for _, column := range query(t, c.place, c.query) {
			if !slices.Contains(store.LogColumns, column) && !slices.Contains(own, column) {
				t.Errorf("%s: the column %s of the log is not in store.LogColumns; add it, or say here why it is not moved", c.place, column)
			}
		}
	}
}

// query returns the texts of a query.
func query(t *testing.T, p migrate.Place, text string) (out []string) {
	t.Helper()
	var driver store.Driver
	var err error
	if p.URL != "" {
		driver, err = postgres.Open(t.Context(), postgres.Options{URL: p.URL, Node: "query", Logger: quiet})
	} else {
		driver, err = sqlite.Open(t.Context(), p.Dir, quiet)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer driver.Close()
	err = driver.Read(t.Context(), func(q store.SQL) error {
		rows, err := q.Query(text)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var value string
			if err := rows.Scan(&value); err != nil {
				return err
			}
			out = append(out, value)
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
