// Command cells places sessions in cells and reports what placement costs: what sessions in several
// cells need, and what it takes to add a cell, to lose one and to rebalance them. docs/cells.md has
// its report. A cell is a database with its nodes. No cell knows another, so cells multiply what
// one primary can do.
//
// A key is hashed to one of a fixed number of buckets, and a table names the cell of each
// bucket. A router needs only the table, and a bucket is the unit that moves.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	o := defaults()
	p := &o.Population
	flag.Uint64Var(&p.Seed, "seed", p.Seed, "seed of the random sessions")
	flag.IntVar(&p.Sessions, "sessions", p.Sessions, "number of sessions")
	flag.Float64Var(&p.SessionsPerUser, "sessions-per-user", p.SessionsPerUser, "mean number of sessions of a user")
	flag.Float64Var(&p.EventsPerMean, "events-per-session", p.EventsPerMean, "mean number of events that are stored for a session")
	flag.IntVar(&o.Cells, "cells", o.Cells, "number of cells; 0 means as many as the busiest time needs")
	flag.Float64Var(&o.Limit, "limit", o.Limit, "load of a cell, relative to its fair share, above which buckets are moved")
	flag.Float64Var(&o.Rates.EventsPerSecond, "copy-rate", o.Rates.EventsPerSecond, "events per second of one copy")
	flag.IntVar(&o.Rates.Parallel, "copies", o.Rates.Parallel, "copies that a cell takes part in at a time")
	flag.DurationVar(&o.Rates.Switch, "switch", o.Rates.Switch, "time from the end of a copy until all routers know the new cell")
	flag.Float64Var(&o.RunningShare, "running", o.RunningShare, "share of the sessions whose request runs at the busiest time")
	flag.Float64Var(&o.ChunksPerRun, "chunks", o.ChunksPerRun, "events per second of a running request")
	flag.Float64Var(&o.CellEvents, "cell-rate", o.CellEvents, "events per second that a cell stores")
	flag.Float64Var(&o.Headroom, "headroom", o.Headroom, "share of cell-rate that is planned with")
	flag.Float64Var(&o.EventBytes, "event-bytes", o.EventBytes, "bytes of an event on the disk of the database")
	flag.Parse()
	if err := simulate(os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "cells:", err)
		os.Exit(2)
	}
}
