package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// options are the assumptions of a simulation.
type options struct {
	Population   population
	Cells        int     // that the placement is shown for; 0 means as many as the sizing needs
	Limit        float64 // load relative to the fair share above which buckets are moved
	Rates        moveRates
	RunningShare float64 // share of the sessions whose request runs at the busiest time
	ChunksPerRun float64 // events per second of a running request
	CellEvents   float64 // events per second that a cell stores
	Headroom     float64 // share of CellEvents that is planned with
	EventBytes   float64 // on the disk of the database, with indexes
}

// validate returns an error that names the first assumption that no simulation is possible with.
func (o options) validate() error {
	for _, v := range []struct {
		flag  string
		value float64
	}{
		{"sessions", float64(o.Population.Sessions)}, {"sessions-per-user", o.Population.SessionsPerUser}, {"events-per-session", o.Population.EventsPerMean},
		{"copy-rate", o.Rates.EventsPerSecond}, {"copies", float64(o.Rates.Parallel)}, {"running", o.RunningShare},
		{"chunks", o.ChunksPerRun}, {"cell-rate", o.CellEvents}, {"headroom", o.Headroom}, {"event-bytes", o.EventBytes},
	} {
		if v.value <= 0 || math.IsNaN(v.value) || math.IsInf(v.value, 0) {
			return fmt.Errorf("-%s is %v; it must be above 0", v.flag, v.value)
		}
	}
	switch {
	case o.Limit <= 1:
		return errors.New("-limit must be above 1, because a cell with its fair share has a load of 1")
	case o.RunningShare > 1 || o.Headroom > 1:
		return errors.New("-running and -headroom are shares; they must be at most 1")
	case o.Cells < 0 || o.cells() < 2 || o.cells() > buckets/8:
		return fmt.Errorf("the simulation needs 2 to %d cells, and not %d; -cells sets their number", buckets/8, o.cells())
	case o.Rates.Switch < 0:
		return errors.New("-switch must not be negative")
	}
	return nil
}

// peak returns the events per second at the busiest time.
func (o options) peak() float64 {
	return float64(o.Population.Sessions) * o.RunningShare * o.ChunksPerRun
}

// needed returns how many cells the busiest time needs if every cell may have up to Limit times
// its fair share.
func (o options) needed() int {
	return int(math.Ceil(o.peak() * o.Limit / (o.CellEvents * o.Headroom)))
}

func (o options) cells() int {
	if o.Cells != 0 {
		return o.Cells
	}
	return max(2, o.needed())
}

// equalCells returns cells of equal weight.
func equalCells(n int) []cell {
	cells := make([]cell, n)
	for i := range cells {
		cells[i] = cell{fmt.Sprintf("cell-%d", i+1), 1}
	}
	return cells
}

// simulate writes a report in Markdown. Equal options give equal reports.
func simulate(w io.Writer, o options) error {
	if err := o.validate(); err != nil {
		return err
	}
	bySession, byUser := o.Population.bySession(), o.Population.byUser()
	cells := equalCells(o.cells())
	table := place(cells)
	var b strings.Builder
	o.writeArithmetic(&b, byUser)
	fmt.Fprintf(&b, "\n| placement of %s sessions in %d cells | sessions in a cell, × fair share | events of a cell, × fair share |\n|---|---|---|\n", count(float64(o.Population.Sessions)), len(cells))
	for _, row := range []struct {
		what  string
		load  bucketLoad
		table cellTable
	}{
		{"by the hash of the session", bySession, table},
		{"by the hash of the user", byUser, table},
		{fmt.Sprintf("by the hash of the user, with the buckets moved that bring each cell to at most %.2f", o.Limit), byUser, rebalance(table, cells, byUser.Events, o.Limit)},
	} {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", row.what, span(row.table.loads(cells, row.load.Sessions)), span(row.table.loads(cells, row.load.Events)))
	}
	o.writeChanges(&b, cells, table, byUser)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeArithmetic writes what the sessions need at the busiest time.
func (o options) writeArithmetic(b *strings.Builder, load bucketLoad) {
	var events float64
	for _, e := range load.Events {
		events += e
	}
	sessions, cells := float64(o.Population.Sessions), float64(o.cells())
	fmt.Fprintf(b, "| quantity | value | from |\n|---|---|---|\n")
	row := func(what, value, from string, args ...any) {
		fmt.Fprintf(b, "| %s | %s | %s |\n", what, value, fmt.Sprintf(from, args...))
	}
	row("sessions", count(sessions), "assumed")
	row("requests that run at the busiest time", count(sessions*o.RunningShare), "assumed: %s of the sessions", percent(o.RunningShare))
	row("events per second", count(o.peak()), "assumed: %s for each running request", count(o.ChunksPerRun))
	row("events per second that a cell is planned for", count(o.CellEvents*o.Headroom), "assumed: %s, of which %s are used", count(o.CellEvents), percent(o.Headroom))
	row("cells", fmt.Sprint(o.needed()), "events per second × %.2f, which a cell may have above its fair share ÷ events per second of a cell", o.Limit)
	row("events in all", count(events), "assumed: %s for each session on average", count(o.Population.EventsPerMean))
	row("disk in all, without copies", gigabytes(events*o.EventBytes), "assumed: %s bytes for each event", count(o.EventBytes))
	row(fmt.Sprintf("sessions and disk of each of %d cells", o.cells()), count(sessions/cells)+", "+gigabytes(events*o.EventBytes/cells), "")
}

// writeChanges writes what it costs to add a cell, to lose one and to rebalance.
func (o options) writeChanges(b *strings.Builder, cells []cell, table cellTable, load bucketLoad) {
	fmt.Fprintf(b, "\n| change of %d cells | buckets that move | sessions that move | most events of a cell afterwards, × fair share | time | a session refuses changes for, median and longest |\n|---|---|---|---|---|---|\n", len(cells))
	sessions := float64(o.Population.Sessions)
	row := func(what string, cells []cell, from, to cellTable, scheduled bool) {
		moves := movesBetween(from, to)
		var moved float64
		for i, m := range moves {
			moved += load.Sessions[m.Bucket]
			if !slices.ContainsFunc(cells, func(c cell) bool { return c.Name == m.From }) {
				moves[i].From = backup
			}
		}
		took, pause := "", ""
		if scheduled {
			plan := schedule(moves, load, o.Rates)
			took, pause = duration(plan.Took), duration(plan.MedianPause)+", "+duration(plan.LongestPause)
			if len(moves) > 0 && moves[0].From == backup {
				pause = "until it is restored"
			}
		}
		fmt.Fprintf(b, "| %s | %d of %d | %s (%s) | %.2f | %s | %s |\n", what, len(moves), buckets, count(moved), percent(moved/sessions),
			highest(to.loads(cells, load.Events)), took, pause)
	}
	more, fewer := equalCells(len(cells)+1), cells[1:]
	row("one more", more, table, place(more), true)
	row("one more, if buckets were assigned by remainder, for comparison", more, modulo(cells), modulo(more), false)
	row("one lost, and restored from its backup to the others", fewer, table, place(fewer), true)
	row(fmt.Sprintf("rebalanced to at most %.2f", o.Limit), cells, table, rebalance(table, cells, load.Events, o.Limit), true)
	double := slices.Clone(cells)
	double[0].Weight = 2
	row("one that is replaced by hardware of twice the power", double, table, place(double), true)
}

func highest(loads map[string]float64) float64 {
	var most float64
	for _, l := range loads {
		most = max(most, l)
	}
	return most
}

// span returns the lowest and the highest load.
func span(loads map[string]float64) string {
	least := math.Inf(1)
	for _, l := range loads {
		least = min(least, l)
	}
	return fmt.Sprintf("%.2f to %.2f", least, highest(loads))
}

// count returns a number rounded to three digits, with separators.
func count(n float64) string {
	if n >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(n))-2)
		n = math.Round(n/unit) * unit
	}
	text := fmt.Sprintf("%.0f", n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }

func gigabytes(bytes float64) string { return count(bytes/1e9) + " GB" }

// duration rounds to what somebody who plans needs.
func duration(d time.Duration) string {
	switch {
	case d >= time.Hour:
		return fmt.Sprintf("%.1f h", d.Hours())
	case d >= time.Minute:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// defaults returns the assumptions for 10 million sessions. The rates are round figures of what
// was seen on two shared cores: commits of three nodes, and a move with loquat migrate.
func defaults() options {
	return options{
		Population:   population{Seed: 1, Sessions: 10_000_000, SessionsPerUser: 10, EventsPerMean: 100},
		Limit:        1.1,
		Rates:        moveRates{EventsPerSecond: 7_000, Parallel: 1, Switch: time.Second},
		RunningShare: 0.001,
		ChunksPerRun: 50,
		CellEvents:   40_000,
		Headroom:     0.5,
		EventBytes:   500,
	}
}
