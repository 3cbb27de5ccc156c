package store

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"

	"loquat"
)

// Several nodes may write the same log if the driver can coordinate them. With any other driver
// this process is the only node, and everything in this file is trivial.

// hold is this process as a node.
type hold struct {
	owner string
	node  loquat.Node
}

func newHold(version string) hold {
	host, _ := os.Hostname()
	id := uuid.NewString()
	return hold{owner: id, node: loquat.Node{
		NodeID: id, Name: fmt.Sprintf("process %d on %s", os.Getpid(), host), Version: version,
		StartedAt: time.Now().UTC().Truncate(time.Millisecond), Self: true, Leads: true,
	}}
}

// Owner returns the name of this node's present hold of the log: the owner in the rows of the
// requests that it runs. It changes when the node lost its hold and registered again.
func (s *Store) Owner() string { return s.hold.owner }

// Shared reports whether other nodes may write the same log.
func (s *Store) Shared() bool { return false }

// Leads reports whether this node does what one node at a time must do. It is always true
// unless the log is shared.
func (s *Store) Leads() bool { return true }

// Node returns this node.
func (s *Store) Node() loquat.Node {
	node := s.hold.node
	node.SeenAt = time.Now().UTC().Truncate(time.Millisecond)
	return node
}

// Nodes returns the live nodes, the oldest first.
func (s *Store) Nodes(context.Context) ([]loquat.Node, error) { return []loquat.Node{s.Node()}, nil }

// MarkChanged records that shared state of a kind changed, of which nodes keep copies. The
// commit makes the other nodes call their OnChanged functions of this kind.
func (tx *Tx) MarkChanged(kind string) {}

// OnChanged calls fn after another node marked kind: within a second, and after this node was
// cut off from the database. If fn fails, it is called again within a second. All functions are
// called by one goroutine, which waits for each. OnChanged must be called before the first
// update.
func (s *Store) OnChanged(kind string, fn func(context.Context) error) {}

// Revision returns how often shared state of a kind was marked as changed, by any node. It is 0
// if the log is not shared.
func (r *Reader) Revision(kind string) (int64, error) { return 0, nil }

// Signal sends a message to the other nodes with the commit. It may be lost, so what it asks
// for must happen without it, too. topic and payload together may have 1 KiB.
func (tx *Tx) Signal(topic, payload string) {}

// OnSignal calls fn with the payload of each message of a topic that another node sent. fn must
// not block. OnSignal must be called before the first update.
func (s *Store) OnSignal(topic string, fn func(payload string)) {}

// OnLeave calls fn when this node has lost its hold of the log, or must assume so. All requests
// that Owner's former result owns must stop at once; nothing of them can be written any more.
// fn must not block. OnLeave must be called before the first update.
func (s *Store) OnLeave(fn func()) {}

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

// Orphans returns the running requests whose node is gone, and the first queued request of each
// session in which nothing runs.
func (r *Reader) Orphans() ([]Request, error) {
	return r.requestsWhere(`r.status IN ('queued', 'running') AND CASE r.status WHEN 'running' THEN r.owner <> ?
		ELSE NOT EXISTS (SELECT 1 FROM requests o WHERE o.sid = r.sid AND (o.status = 'running' OR o.status = 'queued' AND o.queue_order < r.queue_order)) END
		ORDER BY r.sid`, r.owner)
}
