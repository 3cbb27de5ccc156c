//go:build unix

package together_test

import (
	"slices"
	"sync"
	"time"

	"loquat/internal/e2e/binary"
)

// memory is the memory of nodes that are not killed.
type memory struct {
	r    *run
	idle []map[string]float64 // the metrics of each node before
	stop chan struct{}
	all  sync.WaitGroup

	heap, resident [][]float64 // of each node
}

// watchMemory samples the memory of the nodes until check is called.
func (r *run) watchMemory() *memory {
	m := &memory{r: r, stop: make(chan struct{}), heap: make([][]float64, len(r.nodes)), resident: make([][]float64, len(r.nodes))}
	for i := range r.nodes {
		m.idle = append(m.idle, m.read(i))
		m.all.Go(func() {
			for {
				select {
				case <-m.stop:
					return
				case <-time.After(500 * time.Millisecond):
				}
				now := m.read(i)
				m.heap[i] = append(m.heap[i], now["go_memstats_heap_inuse_bytes"])
				m.resident[i] = append(m.resident[i], now["process_resident_memory_bytes"])
			}
		})
	}
	return m
}

func (m *memory) read(i int) map[string]float64 {
	if m.r.t.Failed() { // a node may have been ended to see where it hangs
		return nil
	}
	return binary.MetricsWith(m.r.t, m.r.nodes[i].Now().URL, fullToken)
}

// databaseCaches is about what a database may come to keep of its file in memory as the file grows.
const databaseCaches = 128 << 20

// check fails the test if a node has more goroutines than before, or if its memory grew from the first third
// of the time to the last. Of a program with the race detector only the heap counts: the detector keeps a
// record of every defer for as long as its goroutine lives, outside the heap.
func (m *memory) check() {
	close(m.stop)
	m.all.Wait()
	if m.r.t.Failed() {
		return
	}
	for i := range m.r.nodes {
		third := len(m.heap[i]) / 3
		if third == 0 {
			continue
		}
		heap, later := middle(m.heap[i][:third]), middle(m.heap[i][len(m.heap[i])-third:])
		resident, residentLater := middle(m.resident[i][:third]), middle(m.resident[i][len(m.resident[i])-third:])
		m.r.t.Logf("node %d: heap %.0f MB in the first third, %.0f MB in the last; resident %.0f MB and %.0f MB", i, heap/1e6, later/1e6, resident/1e6, residentLater/1e6)
		if later > 1.5*heap+16e6 {
			m.r.t.Errorf("the heap of node %d grew from %.0f to %.0f MB", i, heap/1e6, later/1e6)
		}
		if !m.r.raced && residentLater > 1.25*resident+databaseCaches {
			m.r.t.Errorf("the resident memory of node %d grew from %.0f to %.0f MB", i, resident/1e6, residentLater/1e6)
		}
		binary.CheckLeaksOf(m.r.t, func() map[string]float64 { return m.read(i) }, m.idle[i], nil)
	}
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
