package importer

import (
	"cmp"
	"slices"
	"time"

	"loquat"
)

// node is a message of another application and its place among the others. Regenerated and edited
// messages have the same parent.
type node struct {
	id, parent string
	at         time.Time
	children   []string // in the order in which they came, if the format has them
}

// tree is the nodes of a conversation. A node whose parent is not there begins the conversation, and
// so does one node of a circle.
type tree struct {
	c        *conversation
	nodes    []node
	index    map[string]int // of the first node with an id
	parents  []int          // none for those that begin the conversation
	children [][]int
	roots    []int
}

// none is the index of no node.
const none = -1

// noParent are the parents of the first message in LibreChat and in Claude.
var noParent = map[string]bool{"": true, "00000000-0000-0000-0000-000000000000": true, "00000000-0000-4000-8000-000000000000": true}

// newTree links nodes. Nodes without any link follow each other. The branch that ends in the node
// shown loses no node to a circle, if the node is there.
func newTree(c *conversation, nodes []node, shown string) *tree {
	t := &tree{c: c, nodes: nodes, index: map[string]int{}, parents: make([]int, len(nodes)), children: make([][]int, len(nodes))}
	listed := map[string]int{} // the parent that lists a node
	for i, n := range nodes {
		if _, twice := t.index[n.id]; !twice {
			t.index[n.id] = i
		}
		for _, child := range n.children {
			listed[child] = i
		}
	}
	linked := t.link(listed)
	if i, ok := t.index[shown]; ok {
		t.cutCircle(i, make([]int, len(nodes)))
	}
	walks := make([]int, len(nodes))
	for i, n := range nodes {
		if !linked {
			t.parents[i] = i - 1 // none before the first
			continue
		}
		t.cutCircle(i, walks)
		if t.parents[i] == none && !noParent[n.parent] {
			c.note("message %s follows itself or a message that is not in the export; it begins the conversation, or another beginning of it", loquat.Clip(n.id, loquat.Excerpt))
		}
	}
	t.sort()
	return t
}

// link finds the parents of all nodes. It reports whether there are any.
func (t *tree) link(listed map[string]int) (linked bool) {
	for i, n := range t.nodes {
		parent, ok := t.index[n.parent]
		if !ok || n.parent == "" {
			parent, ok = listed[n.id]
		}
		if t.parents[i] = none; ok && parent != i {
			t.parents[i] = parent
			linked = true
		}
	}
	return linked
}

// cutCircle follows the parents of a node. If one of them was there before, the node before it in the
// walk gets no parent. walks has the number of the walk that has visited each node.
func (t *tree) cutCircle(i int, walks []int) {
	walk := i + 1
	for walks[i] == 0 {
		walks[i] = walk
		parent := t.parents[i]
		if parent == none {
			return
		}
		if walks[parent] == walk {
			t.parents[i] = none
			return
		}
		i = parent
	}
}

// sort fills the children and roots in the order in which they came.
func (t *tree) sort() {
	for i, parent := range t.parents {
		if parent == none {
			t.roots = append(t.roots, i)
		} else {
			t.children[parent] = append(t.children[parent], i)
		}
	}
	byTime := func(a, b int) int { return t.nodes[a].at.Compare(t.nodes[b].at) }
	slices.SortStableFunc(t.roots, byTime)
	for i, children := range t.children {
		place := map[string]int{}
		for j, id := range t.nodes[i].children {
			place[id] = j + 1
		}
		slices.SortStableFunc(children, func(a, b int) int {
			if x, y := place[t.nodes[a].id], place[t.nodes[b].id]; x > 0 && y > 0 {
				return cmp.Compare(x, y)
			}
			return byTime(a, b)
		})
	}
}

// last returns the node with an id. Without it, last returns the newest node that no other follows.
func (t *tree) last(id string) int {
	if i, ok := t.index[id]; ok && id != "" {
		return i
	}
	newest := none
	for i, n := range t.nodes {
		if len(t.children[i]) == 0 && (newest == none || !n.at.Before(t.nodes[newest].at)) {
			newest = i
		}
	}
	return newest
}

// to returns the nodes from the beginning of the conversation to one.
func (t *tree) to(i int) (path []int) {
	for ; i != none; i = t.parents[i] {
		path = append(path, i)
	}
	slices.Reverse(path)
	return path
}

// from returns the nodes from one to the end of its newest branch.
func (t *tree) from(i int) (path []int) {
	for path = []int{i}; len(t.children[i]) > 0; path = append(path, i) {
		i = t.children[i][len(t.children[i])-1]
	}
	return path
}

// branchReader adds the messages of branches to a conversation.
type branchReader interface {
	begin(after int) // a branch follows a node, or it begins the conversation: none
	read(i int)
	end()
}

// simpleReader reads nodes that do not depend on those before.
type simpleReader func(i int)

func (r simpleReader) begin(int)  {}
func (r simpleReader) read(i int) { r(i) }
func (r simpleReader) end()       {}

// spot is where alternatives hang: in the messages of the session or of an alternative.
type spot struct{ within, index int }

// branch is an alternative that is not read yet, or the messages that are in place.
type branch struct {
	at    spot
	after int
	first int // none: what is in place
}

// branchWalk reads the branches of a tree, one level of alternatives after the other.
type branchWalk struct {
	*tree
	reader  branchReader
	queue   []branch
	inPlace map[spot]bool
	kept    map[spot]int
	size    int // of the alternatives, with those in place
	more    int // messages of branches that were dropped
}

// readBranches adds the branch that ends in a node as the messages of the session, and the others as
// alternatives.
func (t *tree) readBranches(last int, reader branchReader) {
	w := &branchWalk{tree: t, reader: reader, inPlace: map[spot]bool{}, kept: map[spot]int{}}
	path := t.to(last)
	starts := w.readPath(path, none, 0)
	t.c.session.Messages, t.c.messages = t.c.messages, nil
	if len(path) > 0 {
		w.diverge(spot{loquat.OfSession, starts[0]}, none, t.roots, path[0])
	}
	w.divergePath(path, starts, spot{loquat.OfSession, none}, loquat.OfSession)
	for len(w.queue) > 0 {
		b := w.queue[0]
		w.queue = w.queue[1:]
		if b.first == none {
			w.addInPlace(b.at)
		} else {
			w.addKept(b)
		}
	}
	w.dropLone()
	if w.more > 0 {
		t.c.note("%d messages of other branches are left out; a session has at most %d alternatives", w.more, loquat.MaxAlternatives)
	}
}

// readPath reads the nodes of a branch whose first message has an index. starts[i] is the index of the
// first message of path[i]; the last one is the end.
func (w *branchWalk) readPath(path []int, after, index int) (starts []int) {
	w.reader.begin(after)
	for _, i := range path {
		starts = append(starts, index+len(w.c.messages))
		w.reader.read(i)
	}
	starts = append(starts, index+len(w.c.messages))
	w.reader.end()
	return starts
}

// divergePath queues the other branches at the nodes of a path. Those before its first message hang
// where the path hangs.
func (w *branchWalk) divergePath(path, starts []int, at spot, within int) {
	for k, i := range path {
		next := none
		if k+1 < len(path) {
			next = path[k+1]
		}
		where := spot{within, starts[k+1]}
		if starts[k+1] <= at.index {
			where = at
		}
		w.diverge(where, i, w.children[i], next)
	}
}

// diverge queues the nodes that follow a node, other than the one on the path. They, and what is in
// place, keep their order.
func (w *branchWalk) diverge(at spot, after int, nodes []int, onPath int) {
	if len(nodes) == 0 || len(nodes) == 1 && nodes[0] == onPath {
		return
	}
	if onPath == none {
		w.queue = append(w.queue, branch{at, after, none})
	}
	for _, i := range nodes {
		if i == onPath {
			i = none
		}
		w.queue = append(w.queue, branch{at, after, i})
	}
}

func (w *branchWalk) addInPlace(at spot) {
	if w.inPlace[at] {
		return
	}
	w.inPlace[at] = true
	w.c.session.Alternatives = append(w.c.session.Alternatives, loquat.AlternativeNode{Within: at.within, Index: at.index, InPlace: true})
}

// addKept reads a branch. One without messages is no alternative, but its branches may be.
func (w *branchWalk) addKept(b branch) {
	path := w.from(b.first)
	cost := 1
	if w.kept[b.at] == 0 {
		cost = 2 // with what is in place
	}
	if w.size+cost > loquat.MaxAlternatives { // then there is no room for its own branches either
		w.more += len(path)
		for k, i := range path {
			for _, other := range w.children[i] {
				if k+1 == len(path) || other != path[k+1] {
					w.queue = append(w.queue, branch{b.at, i, other})
				}
			}
		}
		return
	}
	starts := w.readPath(path, b.after, b.at.index)
	messages := w.c.messages
	w.c.messages = nil
	if len(messages) == 0 {
		w.divergePath(path, starts, b.at, b.at.within)
		return
	}
	w.size += cost
	w.kept[b.at]++
	w.c.session.Alternatives = append(w.c.session.Alternatives, loquat.AlternativeNode{Within: b.at.within, Index: b.at.index, Messages: messages})
	w.divergePath(path, starts, b.at, len(w.c.session.Alternatives)-1)
}

// dropLone removes what is in place without another alternative.
func (w *branchWalk) dropLone() {
	var out []loquat.AlternativeNode
	places := make([]int, len(w.c.session.Alternatives))
	for i, a := range w.c.session.Alternatives {
		if places[i] = len(out); a.InPlace && w.kept[spot{a.Within, a.Index}] == 0 {
			continue
		}
		out = append(out, a)
	}
	for i := range out {
		if within := out[i].Within; within != loquat.OfSession {
			out[i].Within = places[within]
		}
	}
	w.c.session.Alternatives = out
}
