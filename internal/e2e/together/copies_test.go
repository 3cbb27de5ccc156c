//go:build unix

package together_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"loquat"
	"loquat/internal/client"
	"loquat/internal/e2e/audit"
	"loquat/internal/e2e/binary"
	"loquat/internal/store/postgres/pgtest"
)

// copier copies the data directory of the embedded server all the time.
type copier struct {
	w     *town
	place string

	mu  sync.Mutex
	now *binary.Process
}

func (w *town) startCopier() *copier {
	w.t.Helper()
	c := &copier{w: w, place: filepath.Join(w.dir, "copies")}
	if err := os.Mkdir(c.place, 0o700); err != nil {
		w.t.Fatal(err)
	}
	c.launch()
	w.t.Cleanup(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end()
	})
	return c
}

func (c *copier) launch() {
	path, err := binary.Path()
	if err == nil {
		c.now, err = binary.Launch(path, nil, "backup", "--follow", c.place, "--data", c.w.nodes[0].Now().Data(), "--every", "100ms")
	}
	if err != nil {
		c.w.t.Error(err)
	}
}

// kill kills the process, and starts it again.
func (c *copier) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	c.launch()
}

// end kills the process, which must not have found a fault.
func (c *copier) end() {
	if c.now == nil {
		return
	}
	_ = c.now.Cmd.Process.Kill()
	_ = c.now.Cmd.Wait() // it was killed
	if binary.FaultIn(c.now.Log.String()) != "" {
		c.w.t.Errorf("what makes backups says:\n%s", c.now.Log)
	}
}

// restoreDuring restores a copy in the middle of an act and compares it with what clients have seen. A restore
// may fail if the database was killed meanwhile.
func (r *run) restoreDuring(ctx context.Context) {
	for sleep(ctx, about(r.random(), 6*time.Second)) {
		before := r.restarts.Load()
		err := r.restore(ctx, 0)
		undisturbed := before%2 == 0 && before == r.restarts.Load()
		if err != nil && ctx.Err() == nil && undisturbed {
			r.t.Error(err)
		}
	}
}

// errBehind reports that a copy does not have all events yet.
var errBehind = errors.New("the copy is behind")

// restore makes a server of a copy and compares its log with what clients have seen. The copy must have
// everything up to an event.
func (r *run) restore(ctx context.Context, must loquat.EventID) error {
	server, last, err := r.serveCopy(ctx)
	defer r.dropCopy(server)
	if err != nil {
		return err
	}
	if server == nil { // nothing is copied yet
		if must > 0 {
			return errBehind
		}
		return nil
	}
	api, err := client.New(server.URL, client.Options{Token: fullToken})
	if err != nil {
		return err
	}
	defer api.CloseIdleConnections()
	log, err := readLog(ctx, api, r.from)
	if err != nil {
		return err
	}
	if last == 0 { // of a dump nobody says where it ends: far above are the events of the server that runs on it
		latest, err := r.people[0].api.Events(ctx, client.Query{})
		if err != nil {
			return nil // the node of the original was killed
		}
		for _, e := range log {
			if e.EventID <= latest.LatestEventID {
				last = e.EventID
			}
		}
	}
	if last < must {
		return fmt.Errorf("%w: it ends at event %s, and all was at rest at %s", errBehind, last, must)
	}
	for i, fault := range r.crews[0].load.CompareCopy(log, last) {
		if i < 5 {
			r.t.Errorf("a copy that ends at %s: %v", last, fault)
		}
	}
	if binary.FaultIn(server.Log.String(), expectedErrors...) != "" {
		return fmt.Errorf("the server of a copy says:\n%s", server.Log)
	}
	r.count("restore")
	return nil
}

// dropCopy ends the server of a copy, which may be nil, and removes the database of the copy.
func (r *run) dropCopy(server *binary.Process) {
	if server != nil {
		_ = server.Cmd.Process.Kill()
		_ = server.Cmd.Wait() // it was killed
	}
	if r.copied != "" {
		_ = r.database.Exec("postgres", "DROP DATABASE IF EXISTS "+r.copied+" WITH (FORCE)") // it may have been killed
	}
	r.copied = ""
}

// serveCopy restores the newest state and starts a server on it. It returns no server if there is no state
// yet. last is 0 if it is unknown.
func (r *run) serveCopy(ctx context.Context) (server *binary.Process, last loquat.EventID, err error) {
	config, dir := r.config(), r.t.TempDir()
	to := filepath.Join(dir, "restored")
	if r.database == nil {
		if last, err = r.restoreFiles(ctx, to); err != nil || last == 0 {
			return nil, 0, err
		}
	} else {
		url, err := r.dump()
		if err != nil {
			return nil, 0, err
		}
		config["store"] = map[string]any{"url": url}
	}
	path, err := binary.Path()
	if err != nil {
		return nil, 0, err
	}
	file := r.write(fmt.Sprintf("copy%d.json", r.copies.Add(1)), config)
	for range 3 { // on a slow machine it may not listen in time
		if server, err = binary.Launch(path, nil, "serve", "--config", file, "--listen", "127.0.0.1:0", "--data", to); err != nil {
			return nil, 0, err
		}
		if err = server.Listening(); err == nil {
			return server, last, nil
		}
		_ = server.Cmd.Process.Kill()
		_ = server.Cmd.Wait() // it was killed
	}
	return nil, 0, err
}

// restoreFiles restores the newest state of the continuous backups and verifies it.
func (r *run) restoreFiles(ctx context.Context, to string) (last loquat.EventID, err error) {
	path, err := binary.Path()
	if err != nil {
		return 0, err
	}
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, path, "restore", r.copier.place, to)
	cmd.Env, cmd.Stderr = binary.CleanEnv(), &said
	out, err := cmd.Output()
	if err != nil && strings.Contains(said.String(), "there is no state to restore") {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("restore: %w\n%s", err, &said)
	}
	_, rest, _ := strings.Cut(string(out), ", everything up to event ")
	if _, err := fmt.Sscanf(rest, "%d,", &last); err != nil {
		return 0, fmt.Errorf("restore: %w: %s", err, out)
	}
	check := exec.CommandContext(ctx, path, "check", "--full", "--data", to)
	check.Env = binary.CleanEnv()
	if out, err := check.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("the restored state is not sound: %w\n%s", err, out)
	}
	return last, nil
}

// dump copies the database with pg_dump and pg_restore, and returns the URL of the copy.
func (r *run) dump() (url string, err error) {
	bin := pgtest.Binaries(r.t)
	name, err := r.database.NewDatabase()
	if err != nil {
		return "", err
	}
	r.copied = name
	file := filepath.Join(r.database.Dir(), name)
	at := []string{"-h", "127.0.0.1", "-p", fmt.Sprint(r.database.Port), "-U", "postgres"}
	for _, args := range [][]string{{"pg_dump", "--format=custom", "--file=" + file, "postgres"}, {"pg_restore", "--no-owner", "--dbname=" + name, file}} {
		cmd := r.database.Command(filepath.Join(bin, args[0]), append(at, args[1:]...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%s: %w\n%s", args[0], err, out)
		}
	}
	return r.database.URL(name), os.Remove(file)
}

// readLog reads the events after an id.
func readLog(ctx context.Context, api *client.Client, since loquat.EventID) (log []loquat.Event, err error) {
	for {
		var w client.Window
		err := audit.Retry(ctx, func() (err error) {
			w, err = api.Events(ctx, client.Query{Since: &since, OmitSession: true, Limit: 5000})
			return err
		})
		if err != nil || len(w.Events) == 0 {
			return log, err
		}
		log = append(log, w.Events...)
		since = log[len(log)-1].EventID
	}
}
