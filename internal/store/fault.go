package store

// Fault is what is wrong with a database, for those who run the server. It names no path
// and holds nothing that users said.
type Fault struct {
	Kind   string // such as "full"; a word for each
	Text   string // what is wrong
	Remedy string // what to do
}

// Damaged is the Kind of a database whose file is not what was written to it.
const Damaged = "damaged"

func (f Fault) Error() string { return f.Text + "; " + f.Remedy }
