package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"loquat"
)

// Several nodes may write the same log if the driver can coordinate them: then it implements
// sharedDriver, and its transactions implement sharedSQL. With any other driver this process is
// the only node, and nothing in this file costs anything.
//
// A transaction that writes locks the log, so ids follow the order of commits over all nodes.
// Each node adds the events of the others to its tail (see feedTail). A commit sends a
// notification, with its events if these are small. A notification may be lost; so each node also
// looks every lookEvery.

// sharedDriver is a driver whose database several nodes write. Each node has a hold. Others
// end the hold of a node that does not renew its lease, and it then writes nothing more under
// this hold.
type sharedDriver interface {
	// Hold returns the present hold of this node. It changes only while no Write runs fn.
	Hold() Hold
	// Nodes returns the live nodes, the oldest first.
	Nodes(ctx context.Context) ([]loquat.Node, error)
	// Listen makes the driver call the listener until Close.
	Listen(Listener)
}

// Hold is the right of a node to write to a shared log.
type Hold struct {
	Owner  string // the owner in the rows of requests; unique for ever
	NodeID string
	Leads  bool // it is valid, and the oldest
}

// Listener is called by a sharedDriver. Its methods do not block.
type Listener interface {
	// Notified is called with the text of a commit's notification, of any node.
	Notified(text string)
	// Look is called when notifications may have been lost.
	Look()
	// Left is called when the hold was lost.
	Left()
}

// LogState is the row of a shared log, as a transaction found it.
type LogState struct {
	Last, Gone loquat.EventID
	Sorted     loquat.EventID // see sortIncrements
	Cuts       int64          // how often ids were skipped because the log had lost events
	Timeline   string         // of the database; see Lost

	// The increments in shared rows.
	UnsortedEntries, UnsortedBytes int

	// Lost reports, in a transaction that writes, that the log may have lost events that were
	// visible: the database is another one than that of the last transaction.
	Lost bool
}

// sharedSQL is a transaction of a shared log.
type sharedSQL interface {
	Log() LogState
	// Notify sends a text to the listeners of all nodes when the transaction commits. It does not
	// call text if there are no other nodes. It asks for a short text while a node does not
	// receive notifications, because the database keeps them for that node.
	Notify(text func(short bool) string)
	// Advance sets Last, UnsortedEntries and UnsortedBytes of the log when the transaction commits,
	// and does what Notify does. No other statement of the transaction may follow.
	Advance(to LogState, text func(short bool) string)
}

// lookEvery is how often a node looks for the changes of others without a notification. A
// change is effective on all nodes within a second, so this is less.
const lookEvery = 500 * time.Millisecond

// nodes coordinates this node with the others.
type nodes struct {
	driver sharedDriver // nil if this node is the only one
	self   loquat.Node
	newest atomic.Int64  // highest event id that a notification named
	look   atomic.Bool   // follow is to read up to the end of the log, whatever was notified
	wake   chan struct{} // ends the wait of follow
	recall chan struct{} // ends the wait of callChanged
	stop   context.CancelFunc
	ended  sync.WaitGroup

	onLeave  []func()
	onSignal map[string][]func(string)

	mu        sync.Mutex
	onChanged map[string][]func(context.Context) error // guarded by mu
	known     map[string]int64                         // revisions of shared state that were reported; guarded by mu
}

func newNodes(driver Driver, version string) *nodes {
	host, _ := os.Hostname()
	n := &nodes{
		wake: make(chan struct{}, 1), recall: make(chan struct{}, 1), stop: func() {},
		onSignal: map[string][]func(string){}, onChanged: map[string][]func(context.Context) error{}, known: map[string]int64{},
		self: loquat.Node{
			NodeID: uuid.NewString(), Name: fmt.Sprintf("process %d on %s", os.Getpid(), host), Version: version,
			StartedAt: time.Now().UTC().Truncate(time.Millisecond), Self: true, Leads: true,
		},
	}
	n.driver, _ = driver.(sharedDriver)
	return n
}

// Owner returns the name of this node's present hold of the log: the owner in the rows of the
// requests that it runs. It changes when the node lost its hold and registered again.
func (s *Store) Owner() string {
	if s.nodes.driver == nil {
		return s.nodes.self.NodeID
	}
	return s.nodes.driver.Hold().Owner
}

// Shared reports whether other nodes may write the same log.
func (s *Store) Shared() bool { return s.nodes.driver != nil }

// Leads reports whether this node does what one node at a time must do. It is always true
// unless the log is shared.
func (s *Store) Leads() bool { return s.nodes.driver == nil || s.nodes.driver.Hold().Leads }

// Node returns this node.
func (s *Store) Node() loquat.Node {
	node := s.nodes.self
	node.SeenAt = time.Now().UTC().Truncate(time.Millisecond)
	if s.nodes.driver != nil {
		hold := s.nodes.driver.Hold()
		node.NodeID, node.Leads = hold.NodeID, hold.Leads
	}
	return node
}

// Nodes returns the live nodes, the oldest first.
func (s *Store) Nodes(ctx context.Context) ([]loquat.Node, error) {
	if s.nodes.driver == nil {
		return []loquat.Node{s.Node()}, nil
	}
	list, err := s.nodes.driver.Nodes(ctx)
	return list, s.classify(ctx, asDatabaseError(err))
}

// MarkChanged records that shared state of a kind changed, of which nodes keep copies. The
// commit makes the other nodes call their OnChanged functions of this kind.
func (tx *Tx) MarkChanged(kind string) {
	if tx.sharedLog != nil && !slices.Contains(tx.changed, kind) {
		tx.changed = append(tx.changed, kind)
		tx.wrote = true
	}
}

// OnChanged calls fn after another node marked kind: within a second, and after this node was
// cut off from the database. If fn fails, it is called again within a second. All functions are
// called by one goroutine, which waits for each.
func (s *Store) OnChanged(kind string, fn func(context.Context) error) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.nodes.onChanged[kind] = append(s.nodes.onChanged[kind], fn)
}

// revision returns how often shared state of a kind was marked as changed, by any node. It is 0
// if the log is not shared.
func (r *Reader) revision(kind string) (revision int64, err error) {
	if !r.several {
		return 0, nil
	}
	err = one(r.q, `SELECT revision FROM revisions WHERE kind = ?`, []any{kind}, &revision)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return revision, err
}

// Signal sends a message to the other nodes with the commit. It may be lost, so what it asks
// for must happen without it, too.
func (tx *Tx) Signal(topic, payload string) {
	if tx.sharedLog != nil {
		tx.signals = append(tx.signals, [2]string{topic, payload})
	}
}

// OnSignal calls fn with the payload of each message of a topic that another node sent. fn must
// not block.
func (s *Store) OnSignal(topic string, fn func(payload string)) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.nodes.onSignal[topic] = append(s.nodes.onSignal[topic], fn)
}

// OnLeave calls fn when this node has lost its hold of the log, or must assume so. All requests
// of the former Owner must stop at once: nothing of them can be written any more. fn must not
// block.
func (s *Store) OnLeave(fn func()) {
	s.nodes.mu.Lock()
	defer s.nodes.mu.Unlock()
	s.nodes.onLeave = append(s.nodes.onLeave, fn)
}

// OwnRunning returns the ids of the running requests that belong to this node, and whether a
// cancel was acknowledged.
func (r *Reader) OwnRunning() (map[string]bool, error) {
	rows, err := r.q.Query(`SELECT request_id, cancelled FROM requests WHERE status = 'running' AND (owner = ? OR owner LIKE ?)`, r.owner, r.owner+" %")
	if err != nil {
		return nil, fmt.Errorf("read the requests of this node: %w", err)
	}
	defer rows.Close()
	own := map[string]bool{}
	for rows.Next() {
		var id string
		var cancelled bool
		if err := rows.Scan(&id, &cancelled); err != nil {
			return nil, fmt.Errorf("read a request of this node: %w", err)
		}
		own[id] = cancelled
	}
	return own, asDatabaseError(rows.Err())
}

// isGone returns the condition that the process of the owner in a column has ended.
func (r *Reader) isGone(column string) (condition string, args []any) {
	if r.several {
		return `split_part(` + column + `, ' ', 1) NOT IN (SELECT owner FROM nodes WHERE ended_at IS NULL)`, nil
	}
	return column + ` <> ?`, []any{r.owner}
}

// Orphans returns the running requests whose node is gone, and the first queued request of each
// session in which nothing runs.
func (r *Reader) Orphans() ([]Request, error) {
	gone, args := r.isGone(`r.owner`)
	return r.requestsWhere(`r.status IN ('queued', 'running') AND CASE r.status WHEN 'running' THEN `+gone+`
		ELSE NOT EXISTS (SELECT 1 FROM requests o WHERE o.sid = r.sid AND (o.status = 'running' OR o.status = 'queued' AND o.queue_order < r.queue_order)) END
		ORDER BY r.sid`, args...)
}

// finishShared writes what a transaction of a shared log changed besides its rows: the state of
// the log, the revisions of shared state, and the notification. before is the highest id before
// the updates.
func (tx *Tx) finishShared(before loquat.EventID) error {
	tx.revisions = map[string]int64{}
	for _, kind := range tx.changed {
		revision, err := tx.insert(`INSERT INTO revisions (kind, revision) VALUES (?, 1)
			ON CONFLICT (kind) DO UPDATE SET revision = revisions.revision + 1 RETURNING revision`, kind)
		if err != nil {
			return fmt.Errorf("mark %s as changed: %w", kind, err)
		}
		tx.revisions[kind] = revision
	}
	if tx.last == before && !tx.sorted {
		if len(tx.changed)+len(tx.signals) > 0 {
			tx.sharedLog.Notify(tx.notice)
		}
		return nil
	}
	unsorted := tx.unsorted()
	tx.sharedLog.Advance(LogState{Last: tx.last, UnsortedEntries: unsorted.entries, UnsortedBytes: unsorted.bytes}, tx.notice)
	return nil
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// listener is the Listener of a store.
type listener struct{ s *Store }

func (l listener) Notified(text string) { l.s.notified(text) }

func (l listener) Look() {
	l.s.nodes.look.Store(true)
	poke(l.s.nodes.wake)
	poke(l.s.nodes.recall)
}

func (l listener) Left() {
	l.s.nodes.mu.Lock()
	fns := l.s.nodes.onLeave
	l.s.nodes.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
}

// startNodes begins to follow the other nodes.
func (s *Store) startNodes(ctx context.Context) error {
	n := s.nodes
	if n.driver == nil {
		return nil
	}
	var err error
	if n.known, err = s.readRevisions(ctx); err != nil {
		return fmt.Errorf("read the revisions of shared state: %w", err)
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.stop = stop
	n.driver.Listen(listener{s})
	n.ended.Go(func() { s.follow(life) })
	n.ended.Go(func() { s.callChanged(life) })
	n.ended.Go(func() { s.refuseWhileSilent(life) })
	return nil
}

// stopNodes ends what startNodes began.
func (s *Store) stopNodes() {
	s.nodes.stop()
	s.nodes.ended.Wait()
}

// follow keeps the tail level with the log.
func (s *Store) follow(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		until := newest
		select {
		case <-ctx.Done():
			return
		case <-s.nodes.wake:
			if !s.nodes.look.Swap(false) {
				until = loquat.EventID(s.nodes.newest.Load())
			}
		case <-ticker.C:
		}
		// An error is also found, and reported, by the probe of the committer.
		_ = s.feedTail(ctx, until)
	}
}

// callChanged calls the functions of OnChanged.
func (s *Store) callChanged(ctx context.Context) {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.nodes.recall:
		case <-ticker.C:
		}
		revisions, err := s.readRevisions(ctx)
		if err != nil {
			continue // the next look finds the same
		}
		for kind, revision := range revisions {
			s.nodes.report(ctx, kind, revision, s.log)
		}
	}
}

func (s *Store) readRevisions(ctx context.Context) (map[string]int64, error) {
	out := map[string]int64{}
	err := s.driver.Read(ctx, func(q SQL) error {
		return eachRow(q, `SELECT kind, revision FROM revisions`, nil, func(rows *sql.Rows) error {
			var kind string
			var revision int64
			err := rows.Scan(&kind, &revision)
			out[kind] = revision
			return err
		})
	})
	return out, err
}

// report calls the functions of a kind if its revision is new. Unless all succeed, the next
// look calls them again.
func (n *nodes) report(ctx context.Context, kind string, revision int64, log *slog.Logger) {
	n.mu.Lock()
	fns := n.onChanged[kind]
	isNew := revision > n.known[kind]
	n.mu.Unlock()
	if !isNew {
		return
	}
	for _, fn := range fns {
		if err := fn(ctx); err != nil {
			if ctx.Err() == nil {
				log.Warn("a copy of shared state could not be refreshed; it is tried again", "kind", kind, "error", err)
			}
			return
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.known[kind] = max(revision, n.known[kind])
}

// keepRevisions records the revisions of a transaction of this node, unless another node made
// one meanwhile that was not reported.
func (n *nodes) keepRevisions(own map[string]int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for kind, revision := range own {
		if n.known[kind] == revision-1 {
			n.known[kind] = revision
		}
	}
}

// forgetRevisions makes the next look call all functions, because shared state may have gone
// back.
func (n *nodes) forgetRevisions() {
	n.mu.Lock()
	clear(n.known)
	n.mu.Unlock()
	poke(n.recall)
}
