package feed

// Woken reports whether a wake-up waits for the follower, and takes it.
func (fl *Follower) Woken() bool {
	select {
	case <-fl.watch.C():
		return true
	default:
		return false
	}
}
