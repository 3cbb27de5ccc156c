package httpapi

// callDepth is about how much stack the calls of a request use, in bytes. Together with the calls
// before them they fit into 16 KiB.
const callDepth = 10 << 10

// growStack makes room for the calls of a request. The stack of a new connection's goroutine is
// small. Without this it would be copied several times on the way down, each time with more on it,
// which took a quarter of the time until a relayed request went to its backend.
//
//go:noinline
func growStack() {
	var room [callDepth]byte
	touch(&room)
}

//go:noinline
func touch(room *[callDepth]byte) { room[0] = 1 }
