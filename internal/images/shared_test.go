//go:build unix

package images_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"loquat/internal/asset"
	"loquat/internal/asset/assettest"
	"loquat/internal/asset/files"
	"loquat/internal/images"
	"loquat/internal/store"
	"loquat/internal/store/postgres"
	"loquat/internal/store/postgres/pgtest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	pgtest.StopShared()
	os.Exit(code)
}

// bucket is a store of images in memory. Before each operation it calls fault, whose error it
// returns, after the operation if it is an errLate.
type bucket struct {
	fault func(ctx context.Context, operation, name string) error

	mu      sync.Mutex
	objects map[string][]byte
}

// errLate is the error of an operation that was done nevertheless.
type errLate struct{ error }

func (e errLate) Unwrap() error { return e.error }

func (b *bucket) do(ctx context.Context, operation, name string, fn func() error) error {
	var err error
	if b.fault != nil {
		err = b.fault(ctx, operation, name)
	}
	if _, late := err.(errLate); err != nil && !late {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return errors.Join(fn(), err)
}

func (b *bucket) Put(ctx context.Context, name string, u *asset.Upload) error {
	content, err := os.ReadFile(u.Path())
	if err != nil {
		return err
	}
	return b.do(ctx, "put", name, func() error { b.objects[name] = content; return nil })
}

type nopCloser struct{ io.ReadSeeker }

func (nopCloser) Close() error { return nil }

func (b *bucket) Open(ctx context.Context, name string, size int64) (f io.ReadSeekCloser, err error) {
	err = b.do(ctx, "open", name, func() error {
		content, ok := b.objects[name]
		if !ok {
			return fs.ErrNotExist
		}
		f = nopCloser{bytes.NewReader(content)}
		return nil
	})
	return f, err
}

func (b *bucket) Remove(ctx context.Context, name string) error {
	return b.do(ctx, "remove", name, func() error { delete(b.objects, name); return nil })
}

func (b *bucket) Check(context.Context) error { return nil }

func (b *bucket) names() (out []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name := range b.objects {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// place is a database with a bucket.
type place struct {
	*bucket
	store *store.Store
	url   string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	_, url := pgtest.Shared(t).Database(t)
	db, err := postgres.Open(t.Context(), postgres.Options{URL: url, Node: "test", Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), db, store.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &place{bucket: &bucket{objects: map[string][]byte{}}, store: s, url: url}
}

// keeper returns what one node uses.
func (p *place) keeper(external bool) *images.Shared {
	return images.NewShared(images.SharedOptions{Store: p.store, Bytes: p.bucket, External: external, Logger: quiet})
}

// later makes all objects older.
func (p *place) later(t *testing.T, by time.Duration) {
	t.Helper()
	p.sql(t, fmt.Sprintf("UPDATE image_objects SET at = at - %d", by.Microseconds()))
}

func (p *place) sql(t *testing.T, statement string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

func (p *place) wantObjects(t *testing.T, what string, n int) {
	t.Helper()
	if names := p.names(); len(names) != n {
		t.Errorf("%s: %d objects, want %d: %q", what, len(names), n, names)
	}
}

func upload(t *testing.T, number int) *asset.Upload {
	t.Helper()
	return assettest.Receive(t, assettest.PNG(t, number, 1000+number))
}

func cleanUp(t *testing.T, k images.Keeper) {
	t.Helper()
	if err := k.CleanUp(t.Context()); err != nil {
		t.Error(err)
	}
}

// Equal images share an object, which lives as long as its last owner.
func TestSharedOwners(t *testing.T) {
	p := newPlace(t)
	a, b := p.keeper(false), p.keeper(false)
	createSession(t, p.store, "a")
	for _, k := range []images.Keeper{a, b, a} {
		id := fmt.Sprint(rand.Int())
		u := upload(t, 1)
		if err := addTo(t, k, p.store, "a", id, u); err != nil {
			t.Fatal(err)
		}
		wantImage(t, a, u)
		wantImage(t, b, u)
		p.wantObjects(t, "equal images", 1)
		if k != b {
			defer func() {
				wantImage(t, b, u)
				if err := removeFrom(t, p.store, "a", id); err != nil {
					t.Error(err)
				}
				cleanUp(t, b)
			}()
		}
	}
	p.wantObjects(t, "three owners", 1)
	if err := addTo(t, a, p.store, "nobody", "x", upload(t, 2)); err == nil {
		t.Error("a session that does not exist became an owner")
	}
	p.wantObjects(t, "an upload to no session", 1)
}

// A failover to a standby that lags may bring back an image that was just removed. So external
// bytes stay for a while.
func TestExternalBytesOutliveTheirOwner(t *testing.T) {
	p := newPlace(t)
	k := p.keeper(true)
	createSession(t, p.store, "a")
	u := upload(t, 1)
	if err := addTo(t, k, p.store, "a", "1", u); err != nil {
		t.Fatal(err)
	}
	p.sql(t, "CREATE TABLE before AS TABLE image_objects; CREATE TABLE owners AS TABLE assets")
	if err := removeFrom(t, p.store, "a", "1"); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, k)
	p.wantObjects(t, "just removed", 1)
	p.sql(t, "DELETE FROM image_objects; INSERT INTO image_objects TABLE before; INSERT INTO assets TABLE owners")
	wantImage(t, k, u)
	if err := removeFrom(t, p.store, "a", "1"); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, k)
	p.later(t, time.Hour)
	cleanUp(t, k)
	p.wantObjects(t, "removed for an hour", 0)
}

// An object that cannot be removed does not keep those after it. A store that removes nothing is not asked for all.
func TestRemovalThatFails(t *testing.T) {
	const n = 40
	p := newPlace(t)
	k := p.keeper(false)
	createSession(t, p.store, "a")
	for id := range n {
		if err := addTo(t, k, p.store, "a", fmt.Sprint(id), upload(t, id)); err != nil {
			t.Fatal(err)
		}
		if err := removeFrom(t, p.store, "a", fmt.Sprint(id)); err != nil {
			t.Fatal(err)
		}
	}
	refused, tried := errors.New("refused"), 0
	p.fault = func(_ context.Context, operation, _ string) error {
		if operation == "remove" {
			tried++
			return refused
		}
		return nil
	}
	if err := k.CleanUp(t.Context()); !errors.Is(err, refused) || tried == 0 || tried >= n {
		t.Errorf("a store that removes nothing was asked %d times: %v", tried, err)
	}
	first := p.names()[0]
	p.fault = func(_ context.Context, operation, name string) error {
		if operation == "remove" && name == first {
			return refused
		}
		return nil
	}
	if err := k.CleanUp(t.Context()); !errors.Is(err, refused) {
		t.Errorf("the error of the first object: %v", err)
	}
	p.wantObjects(t, "the object that cannot be removed", 1)
}

// A put that failed may be carried out later, when the bytes were given up. They are removed too.
func TestExternalPutThatIsCarriedOutLate(t *testing.T) {
	p := newPlace(t)
	k := p.keeper(true)
	createSession(t, p.store, "a")
	interrupted, name := errors.New("interrupted"), ""
	p.fault = func(_ context.Context, operation, object string) error {
		if operation == "put" {
			name = object
			return interrupted
		}
		return nil
	}
	if err := addTo(t, k, p.store, "a", "1", upload(t, 1)); !errors.Is(err, interrupted) {
		t.Fatal(err)
	}
	cleanUp(t, k)
	p.objects[name] = []byte("late")
	p.later(t, time.Hour)
	cleanUp(t, k)
	p.wantObjects(t, "given up for an hour", 0)
}

// The objects of another log, of which the database is a copy, are not removed.
func TestExternalBytesOfAnotherLog(t *testing.T) {
	p := newPlace(t)
	createSession(t, p.store, "a")
	for id := range 2 {
		if err := addTo(t, p.keeper(true), p.store, "a", fmt.Sprint(id), upload(t, id)); err != nil {
			t.Fatal(err)
		}
	}
	p.sql(t, fmt.Sprintf("UPDATE image_objects SET name = 'other-' || name WHERE sha256 = '%s'", upload(t, 1).SHA256))
	for id := range 2 {
		if err := removeFrom(t, p.store, "a", fmt.Sprint(id)); err != nil {
			t.Fatal(err)
		}
	}
	cleanUp(t, p.keeper(true))
	p.later(t, time.Hour)
	cleanUp(t, p.keeper(true))
	p.wantObjects(t, "the objects of this log are removed", 1)
}

// A node is paused at any step of an upload, for longer than uploads may take. What it does
// later neither loses an image nor leaves bytes.
func TestNodeThatIsPausedWhileItUploads(t *testing.T) {
	for _, late := range []bool{false, true} {
		p := newPlace(t)
		createSession(t, p.store, "a")
		paused, other := p.keeper(false), p.keeper(false)
		u := upload(t, 1)
		puts := 0
		p.fault = func(_ context.Context, operation, _ string) error {
			if operation == "put" {
				if puts++; puts == 1 {
					p.later(t, 2*time.Hour)
					cleanUp(t, other)
					if late { // another node stores the same image meanwhile
						if err := addTo(t, other, p.store, "a", "2", upload(t, 1)); err != nil {
							t.Error(err)
						}
					}
				}
			}
			return nil
		}
		if err := addTo(t, paused, p.store, "a", "1", u); err != nil {
			t.Errorf("an upload that took long: %v", err)
		}
		wantImage(t, other, u)
		cleanUp(t, other)
		p.wantObjects(t, "after the pause", 1)
	}
}

// A node dies after each step of an upload. A cleanup removes what it has left.
func TestNodeThatDiesWhileItUploads(t *testing.T) {
	for _, kept := range []bool{false, true} {
		p := newPlace(t)
		createSession(t, p.store, "a")
		k := p.keeper(false)
		died := errors.New("died")
		p.fault = func(_ context.Context, operation, _ string) error {
			if kept && operation == "put" {
				return errLate{died}
			}
			return died
		}
		if err := addTo(t, k, p.store, "a", "1", upload(t, 1)); !errors.Is(err, died) {
			t.Fatal(err)
		}
		p.fault = nil
		if kept {
			p.wantObjects(t, "left", 1)
		}
		cleanUp(t, k)
		p.later(t, 2*time.Hour)
		cleanUp(t, k)
		p.wantObjects(t, "after a cleanup", 0)
		u := upload(t, 1)
		if err := addTo(t, k, p.store, "a", "1", u); err != nil {
			t.Fatal(err)
		}
		wantImage(t, k, u)
	}
}

// Several nodes add and remove the same images at once, over a bucket that is slow and fails.
// Every image that has an owner can be read at any time, and nothing is left at the end.
func TestSharedAtOnce(t *testing.T) {
	const nodes, rounds, pictures = 4, 40, 3
	p := newPlace(t)
	down := errors.New("the bucket failed")
	p.fault = func(_ context.Context, operation, _ string) error {
		time.Sleep(time.Duration(rand.IntN(4)) * time.Millisecond)
		switch n := rand.IntN(12); {
		case operation == "open" || n > 1:
			return nil
		case n == 1:
			return errLate{down}
		}
		return down
	}
	stop := make(chan struct{})
	var workers, cleaners sync.WaitGroup
	for range 2 {
		k := p.keeper(false)
		cleaners.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := k.CleanUp(t.Context()); err != nil && !errors.Is(err, down) {
						t.Error(err)
					}
					time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
				}
			}
		})
	}
	for n := range nodes {
		k, session := p.keeper(false), fmt.Sprint("s", n)
		createSession(t, p.store, session)
		var list []*asset.Upload
		for range rounds {
			list = append(list, upload(t, rand.IntN(pictures)))
		}
		workers.Go(func() {
			for i, u := range list {
				id := fmt.Sprint(i)
				if err := addTo(t, k, p.store, session, id, u); err != nil {
					if !errors.Is(err, down) {
						t.Error(err)
					}
					continue
				}
				wantImage(t, k, u)
				if rand.IntN(2) == 0 {
					time.Sleep(time.Duration(rand.IntN(5)) * time.Millisecond)
					wantImage(t, k, u)
				}
				if err := removeFrom(t, p.store, session, id); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	close(stop)
	cleaners.Wait()
	p.fault = nil
	p.later(t, 2*time.Hour)
	cleanUp(t, p.keeper(false))
	p.wantObjects(t, "at the end", 0)
}

// The images of a server that kept them in files are taken in, once, and their files stay.
func TestTakeIn(t *testing.T) {
	p := newPlace(t)
	k := p.keeper(false)
	createSession(t, p.store, "a")
	path := filepath.Join(t.TempDir(), "assets")
	if files.Any(path) {
		t.Error("a directory that does not exist has images")
	}
	dir, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []*asset.Upload
	for i := range 7 {
		u := upload(t, i)
		list = append(list, u)
		if i != 3 && i != 4 { // image 3 is lost, nobody owns 4
			if err := dir.Put(t.Context(), u.SHA256, upload(t, i)); err != nil {
				t.Fatal(err)
			}
		}
		if i == 4 {
			continue
		}
		if i == 5 {
			if err := os.WriteFile(files.Path(path, u.SHA256), make([]byte, u.Size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		// An owner without an object is what the earlier version has left.
		if err := addTo(t, images.NewLocal(p.store, dir, quiet), p.store, "a", fmt.Sprint(i), assettest.Receive(t, assettest.PNG(t, i, 1000+i))); err != nil {
			t.Fatal(err)
		}
		if i == 3 {
			if err := os.Remove(files.Path(path, u.SHA256)); err != nil {
				t.Fatal(err)
			}
		}
	}
	failing := errors.New("the bucket failed")
	puts := 0
	p.fault = func(context.Context, string, string) error {
		if puts++; puts > 2 {
			return failing
		}
		return nil
	}
	if _, _, err := k.TakeIn(t.Context(), path); !errors.Is(err, failing) {
		t.Errorf("a start while the bucket fails: %v", err)
	}
	p.fault = nil
	for i, want := range []int{2, 0} {
		stored, missing, err := k.TakeIn(t.Context(), path)
		lost := []string{list[3].SHA256, list[5].SHA256}
		slices.Sort(lost)
		if err != nil || stored != want || !slices.Equal(missing, lost) {
			t.Errorf("start %d: stored %d, missing %s, %v", i, stored, strings.Join(missing, " "), err)
		}
	}
	for i, u := range list {
		if i < 3 || i == 6 {
			wantImage(t, k, u)
		}
	}
	if !files.Any(path) {
		t.Error("the files are gone")
	}
	cleanUp(t, k)
	p.wantObjects(t, "taken in", 4)
}
