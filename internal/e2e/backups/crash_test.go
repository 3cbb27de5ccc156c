//go:build unix

// Package backups_test tests continuous copies with the real program.
package backups_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"loquat"
	"loquat/internal/asset/s3/s3test"
	"loquat/internal/e2e/binary"
)

// The sizes of a crash run.
const (
	killRounds       = 15 // unless LOQUAT_BACKUP_ROUNDS says otherwise
	killRoundsShort  = 4
	roundsPerPlace   = 50 // kills with one data directory and one place
	roundsPerRestore = 3
	maxLife          = 2500 * time.Millisecond // until the next kill
	every            = 100 * time.Millisecond
	// lossBound is what copies may lack when a follower that runs is killed: changes of the time between
	// two copies, and of the time that a copy takes. On a machine that is busy with other work it is longer.
	lossBound = every + 1400*time.Millisecond
)

// Servers and followers are killed at random while clients write. Each state that is restored then, the
// newest and earlier ones, has everything that any client knew before its time, unchanged, and is sound.
// The newest is not older than the bound.
func TestKilledBackups(t *testing.T) {
	usual := killRounds
	if testing.Short() {
		usual = killRoundsShort
	}
	rounds := binary.Number(t, "LOQUAT_BACKUP_ROUNDS", usual)
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("LOQUAT_BACKUP_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("LOQUAT_BACKUP_SEED: %v", err)
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	var total tally
	began := time.Now()
	for era := 0; total.rounds < rounds && !t.Failed(); era++ {
		t.Run(fmt.Sprint("era-", era), func(t *testing.T) {
			newEra(t, random, &total, era%2 == 1).run(min(roundsPerPlace, rounds-total.rounds, max(rounds/2, 1)))
		})
		if rounds > roundsPerPlace {
			fmt.Printf("%s: %+v\n", time.Since(began).Round(time.Second), total) // as it goes, not at the end
		}
	}
	t.Logf("LOQUAT_BACKUP_SEED=%d, %s: %+v", seed, time.Since(began).Round(time.Second), total)
}

// tally counts what a run did.
type tally struct {
	rounds, servers, followers int           // and kills of each
	buckets                    int           // rounds with a bucket
	resumed, full              int           // starts of followers
	restores, bounded, events  int           // bounded is restores whose age was checked
	bound                      time.Duration // the longest one, of a busy machine
}

// era is one data directory and one place of copies.
type era struct {
	t      *testing.T
	random *rand.Rand
	total  *tally
	bucket bool

	program, dir, place string
	args                []string
	env                 []string
	crowd               *crowd
	pace                *pace
	server, follower    *binary.Process
	began               time.Time
	ready               time.Time // since when the follower of the moment copies changes
	covered             time.Time // the copies must have everything before
}

func newEra(t *testing.T, random *rand.Rand, total *tally, bucket bool) *era {
	t.Helper()
	program, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	e := &era{t: t, random: random, total: total, program: program, dir: t.TempDir(), began: time.Now()}
	e.place = filepath.Join(e.dir, "copies")
	if e.bucket = bucket && (os.Getenv("LOQUAT_TEST_S3") != "" || os.Getenv("CI") != ""); e.bucket {
		e.place = s3test.Start(t).URL("copies")
		e.env = []string{"AWS_ACCESS_KEY_ID=" + s3test.AccessKeyID, "AWS_SECRET_ACCESS_KEY=" + s3test.SecretAccessKey}
	} else if err := os.Mkdir(e.place, 0o700); err != nil {
		t.Fatal(err)
	}
	address := binary.FreeAddress(t)
	e.args = []string{"serve", "--demo", "--listen", address, "--data", filepath.Join(e.dir, "data")}
	e.startServer()
	e.crowd, e.pace = startCrowd(t, "http://"+address), startPace(t, e.dir)
	return e
}

func (e *era) run(rounds int) {
	defer func() {
		e.crowd.stop()
		for _, p := range []*binary.Process{e.server, e.follower} {
			if p != nil {
				e.kill(p)
			}
		}
	}()
	for i := 1; i <= rounds && !e.t.Failed(); i++ {
		e.round()
		if i%roundsPerRestore == 0 || i == rounds {
			e.restore()
		}
	}
	e.crowd.stop()
	if e.follower == nil {
		e.startFollower()
	}
	e.awaitReady()
	e.verify()
}

// round starts what is dead and kills something.
func (e *era) round() {
	e.total.rounds++
	if e.bucket {
		e.total.buckets++
	}
	if e.server == nil {
		e.startServer()
	}
	if e.follower == nil {
		e.startFollower()
	}
	time.Sleep(time.Duration(e.random.Int64N(int64(maxLife) >> e.random.IntN(5))))
	if e.random.IntN(3) == 0 { // its copies are bound to be there
		e.awaitReady()
	}
	e.noteReady()
	switch e.random.IntN(4) {
	case 0:
		e.killServer(e.random.IntN(3) == 0)
	case 1, 2:
		e.killFollower(e.random.IntN(5) == 0)
	default:
		e.killServer(false)
		e.killFollower(false)
	}
}

func (e *era) launch(args ...string) *binary.Process {
	e.t.Helper()
	p, err := binary.Launch(e.program, e.env, args...)
	if err != nil {
		e.t.Fatal(err)
	}
	return p
}

func (e *era) startServer() {
	e.t.Helper()
	e.server = e.launch(e.args...)
	if err := e.server.Listening(); err != nil {
		e.t.Fatal(err)
	}
}

func (e *era) startFollower() {
	e.follower, e.ready = e.launch("backup", "--follow", e.place, "--data", filepath.Join(e.dir, "data"), "--every", every.String()), time.Time{}
}

// noteReady notes since when the follower copies changes, as far as its log says so: since it began, or since its
// first copy with all pages.
func (e *era) noteReady() bool {
	log, begun := e.follower.Log.String(), "msg=copying"
	if strings.Contains(log, "has all pages") {
		begun = `msg="all pages are copied"`
	}
	if at := strings.Index(log, begun); e.ready.IsZero() && at >= 0 {
		text := strings.TrimPrefix(log[strings.LastIndex(log[:at], "time="):], "time=")
		text, _, _ = strings.Cut(text, " ")
		when, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			e.t.Fatal(err)
		}
		e.ready = when
		if strings.Contains(log, "has all pages") {
			e.total.full++
		} else {
			e.total.resumed++
		}
	}
	return !e.ready.IsZero()
}

func (e *era) awaitReady() {
	e.t.Helper()
	for began := time.Now(); !e.noteReady(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			e.t.Fatalf("the follower does not begin:\n%s", e.follower.Log)
		}
	}
	time.Sleep(lossBound + e.pace.delay())
}

// killServer kills the server, perhaps while it stops.
func (e *era) killServer(stopping bool) {
	e.total.servers++
	if stopping {
		_ = e.server.Cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Duration(e.random.Int64N(int64(100 * time.Millisecond))))
	}
	e.kill(e.server)
	e.server = nil
}

func (e *era) killFollower(stopping bool) {
	e.total.followers++
	now, bound := time.Now(), lossBound+e.pace.delay()
	e.total.bound = max(e.total.bound, bound)
	if sure := now.Add(-bound); !e.ready.IsZero() && sure.After(e.ready) && sure.After(e.covered) {
		e.covered = sure
	}
	if stopping {
		_ = e.follower.Cmd.Process.Signal(syscall.SIGTERM)
		time.Sleep(time.Duration(e.random.Int64N(int64(100 * time.Millisecond))))
	}
	e.kill(e.follower)
	e.follower = nil
}

// kill kills a process, which must not have found a fault.
func (e *era) kill(p *binary.Process) {
	_ = p.Cmd.Process.Kill()
	_ = p.Cmd.Wait() // how it ended is known
	for _, sign := range []string{"panic:", "level=ERROR", "fatal error:", "loquat:"} {
		if strings.Contains(p.Log.String(), sign) {
			e.t.Errorf("%v says:\n%s", p.Cmd.Args, p.Log)
		}
	}
}

// restore compares the newest state and an earlier one with what clients have seen.
func (e *era) restore() {
	e.t.Helper()
	if e.covered.IsZero() {
		return // perhaps nothing is copied yet
	}
	at, last, ok := e.compare("")
	if !ok {
		return
	}
	if must := e.crowd.lastBefore(e.covered); last < must {
		e.t.Errorf("the newest state, of %s, ends at %s; a client knew %s before %s", at.Format(time.RFC3339Nano), last, must, e.covered.Format(time.RFC3339Nano))
	}
	e.total.bounded++
	earlier := e.began.Add(time.Duration(e.random.Int64N(int64(time.Since(e.began)))))
	if found, _, ok := e.compare(earlier.UTC().Format(time.RFC3339Nano)); ok && found.After(earlier) {
		e.t.Errorf("the state of %s was restored for %s", found, earlier)
	}
}

// compare restores a state, starts a server on it and compares. It returns false if there is no state
// as old.
func (e *era) compare(upTo string) (at time.Time, last loquat.EventID, ok bool) {
	e.t.Helper()
	to := filepath.Join(e.t.TempDir(), "restored")
	cmd := exec.CommandContext(e.t.Context(), e.program, "restore", e.place, to, "--at", upTo)
	cmd.Env = append(binary.CleanEnv(), e.env...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		if upTo != "" && strings.Contains(said.String(), "the oldest is that of") {
			return at, 0, false
		}
		e.t.Fatalf("restore: %v\n%s", err, said.String())
	}
	text := strings.TrimPrefix(string(out), to+": the state of ")
	when, rest, _ := strings.Cut(text, ", everything up to event ")
	if at, err = time.Parse(time.RFC3339, when); err == nil {
		_, err = fmt.Sscanf(rest, "%d,", &last)
	}
	if err != nil {
		e.t.Fatalf("%v: %s", err, out)
	}
	if code, said := binary.Exit(e.t, "check", "--full", "--data", to); code != binary.ExitOK {
		e.t.Errorf("the state of %s is not sound: %s", when, said)
	}
	p := e.launch("serve", "--demo", "--listen", "127.0.0.1:0", "--data", to)
	defer e.kill(p)
	if err := p.Listening(); err != nil {
		e.t.Fatal(err)
	}
	e.crowd.compare(e.t, p.URL, at, last)
	e.total.restores++
	e.total.events += int(last)
	return at, last, true
}

// verify checks the place as an operator does.
func (e *era) verify() {
	e.t.Helper()
	cmd := exec.CommandContext(e.t.Context(), e.program, "backup", "--verify", e.place)
	cmd.Env = append(binary.CleanEnv(), e.env...)
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "is sound") {
		e.t.Errorf("%v\n%s", err, out)
	}
}
