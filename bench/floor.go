package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options of the sections floor and history, from the command line.
var (
	floorPairs  int    // pairs of runs
	floorWork   string // measure only works whose name contains this
	productPath string // program to measure; empty: build it
	basePath    string // an older version of the program, to compare with
)

// figure is what a run measures.
type figure int

const (
	cpuPer1000 figure = iota // ms of the server, for 1,000 chunks delivered or 1,000 sends
	p50Took                  // ms from chunk made to received, or from send to its end
	p99Took
	p99Half     // ms, of the second half of each session
	overIdeal   // ms beyond the time that the backend takes
	writtenEach // bytes written to disk per chunk or send
	peakMB      // MB of resident memory at most
	idleMB      // MB of resident memory before the load
	perSecond   // sends
	figureCount
)

var figureNames = [figureCount]string{"CPU per 1,000", "p50", "p99", "p99 of the second half", "wall beyond the ideal", "bytes written each", "peak memory", "idle memory", "sends per second"}

func (f figure) String() string { return figureNames[f] }

// format returns a value with its unit.
func (f figure) format(v float64) string {
	switch f {
	case writtenEach, perSecond:
		return fmt.Sprintf("%.0f", v)
	case peakMB, idleMB:
		return fmt.Sprintf("%.0f MB", v)
	}
	if v < 10 {
		return fmt.Sprintf("%.1f ms", v)
	}
	return fmt.Sprintf("%.0f ms", v)
}

// figures are the results of one run.
type figures [figureCount]float64

// partner is a program in the comparison.
type partner int

const (
	theFloor partner = iota
	theProduct
	theBase
)

var partnerNames = [...]string{theFloor: "floor", theProduct: "Loquat", theBase: "older version"}

// floorAim is an aim of a work. A ratio to another partner is the median of the pairs.
type floorAim struct {
	figure  figure
	to      partner // theProduct: the figure itself
	most    float64
	atLeast bool
}

// floorWorkload is a load and its aims.
type floorWorkload struct {
	name string
	load streamLoad // of no sessions: the closed loop of sends
	aims []floorAim
}

var floorWorkloads = []floorWorkload{
	{"200 sessions × 50/s × 200", streamLoad{200, 50, 200, 1}, []floorAim{
		{cpuPer1000, theFloor, 1.35, false},
		{p50Took, theFloor, 2, false},
		{p99Took, theFloor, 5, false},
		{overIdeal, theProduct, 200, false},
		{writtenEach, theFloor, 4, false},
	}},
	{"1,000 sessions × 20/s × 100", streamLoad{1000, 20, 100, 1}, []floorAim{
		{p50Took, theFloor, 5, false},
		{peakMB, theProduct, 200, false},
	}},
	{"200 sessions × 10/s × 60, 20 followers each", streamLoad{200, 10, 60, 20}, []floorAim{{p50Took, theFloor, 3, false}}},
	{"1 session × 50/s × 200", streamLoad{1, 50, 200, 1}, []floorAim{{p50Took, theFloor, 1.3, false}}},
	{"600 sessions × 50/s × 200", streamLoad{600, 50, 200, 1}, []floorAim{{p99Half, theProduct, 100, false}}},
	{sendsName, streamLoad{}, []floorAim{
		{perSecond, theBase, 2.5, true},
		{p50Took, theBase, 0.4, false},
		{p99Took, theBase, 0.4, false},
		{idleMB, theBase, 1.1, false},
	}},
}

const sendsName = "64 clients send in a closed loop"

// benchFloor compares Loquat with the floor: a relay that also syncs every chunk to disk
// before any follower sees it, and does nothing else. Both are processes of their own.
func benchFloor(w io.Writer) ([]verdict, error) {
	f, err := startFloor()
	if err != nil {
		return nil, err
	}
	defer f.stop()
	aims := newTable("work", "figure", "floor", "Loquat", "older version", "× floor", "× older version", "aim", "holds")
	all := newTable("work", "program", "CPU per 1,000", "p50", "p99", "p99 of the second half", "wall beyond the ideal", "bytes written each", "peak memory", "idle memory", "sends per second")
	var verdicts []verdict
	for _, work := range floorWorkloads {
		if !strings.Contains(work.name, floorWork) {
			continue
		}
		runs, err := f.compare(work)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", work.name, err)
		}
		verdicts = append(verdicts, runs.report(work, aims)...)
		runs.list(work, all)
	}
	fmt.Fprintf(w, "medians of %d pairs, the spread of the ratios in brackets\n\n", floorPairs)
	if err := aims.print(w); err != nil {
		return nil, err
	}
	fmt.Fprintln(w)
	return verdicts, all.print(w)
}

// floorBench runs the partners on one backend.
type floorBench struct {
	programs [3]program // by partner; without a path: the partner takes no part
	backend  *process
	dir      string
	runs     int
}

func startFloor() (*floorBench, error) {
	f := &floorBench{}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	product := program{path: productPath}
	if productPath == "" {
		if product, err = buildProgram(); err != nil {
			return nil, err
		}
		f.dir = product.dir
	} else if f.dir, err = os.MkdirTemp("", "loquat-bench-"); err != nil {
		return nil, err
	}
	f.programs = [3]program{
		theFloor:   {path: own, dir: f.dir, env: []string{floorEnv + "=relay"}},
		theProduct: {path: product.path, dir: f.dir},
		theBase:    {path: basePath, dir: f.dir},
	}
	if f.backend, err = (program{path: own, dir: f.dir, env: []string{floorEnv + "=backend"}}).start(); err != nil {
		os.RemoveAll(f.dir)
		return nil, err
	}
	return f, nil
}

func (f *floorBench) stop() {
	f.backend.stop()
	os.RemoveAll(f.dir)
}

// floorConfig makes the limits wide enough for every work.
const floorConfig = `{"providers": {"main": {"provider": "reference_generic_compatible", "model": "bench", "base_url": "%s/v1"}},
	"limits": {"max_connections": 16384, "max_connections_per_address": 16384, "max_followers": 8192, "max_followers_per_token": 8192}}`

// serve starts a partner with a fresh data directory.
func (f *floorBench) serve(who partner) (server *process, remove func(), err error) {
	f.runs++
	data := fmt.Sprint("run-", f.runs)
	p := f.programs[who]
	if server, err = p.serve(fmt.Sprintf(floorConfig, f.backend.url), data); err != nil {
		return nil, nil, err
	}
	return server, func() {
		server.stop()
		os.RemoveAll(p.data(data))
		os.Remove(filepath.Join(p.dir, data+".json"))
	}, nil
}

// floorRuns are the results by partner. Those with the same index are a pair.
type floorRuns [3][]figures

// compare runs the partners in turn. Who begins changes from pair to pair.
func (f *floorBench) compare(work floorWorkload) (runs floorRuns, err error) {
	partners := []partner{theFloor, theProduct}
	if f.programs[theBase].path != "" && slices.ContainsFunc(work.aims, func(a floorAim) bool { return a.to == theBase }) {
		partners = append(partners, theBase)
	}
	for pair := range floorPairs {
		for turn := range partners {
			who := partners[(pair+turn)%len(partners)]
			got, err := f.run(who, work)
			if err != nil {
				return runs, fmt.Errorf("%s: %w", partnerNames[who], err)
			}
			runs[who] = append(runs[who], got)
		}
	}
	return runs, nil
}

// run measures one partner once.
func (f *floorBench) run(who partner, work floorWorkload) (figures, error) {
	server, remove, err := f.serve(who)
	if err != nil {
		return figures{}, err
	}
	defer remove()
	t := newTarget(server.url)
	defer t.close()
	if err := warmUp(t); err != nil {
		return figures{}, err
	}
	idle := float64(resident(server.cmd.Process.Pid)) / 1e6
	var out figures
	if work.load.sessions == 0 {
		out, err = measureSends(server, t)
	} else {
		out, err = measureStreams(server, t, work.load)
	}
	if err != nil {
		return out, err
	}
	peak, err := server.peakMemory()
	out[peakMB], out[idleMB] = float64(peak)/1e6, idle
	return out, err
}

// warmUp streams a little, so that caches are filled and the backend is connected.
func warmUp(t target) error {
	load := streamLoad{sessions: 1, rate: 50, chunks: 5, followers: 1}
	sessions, followers, err := load.prepare(t)
	if err != nil {
		return err
	}
	defer followers[0].conn.Close()
	return load.stream(t, sessions, followers)
}

func measureStreams(server *process, t target, load streamLoad) (out figures, err error) {
	sessions, followers, err := load.prepare(t)
	if err != nil {
		return out, err
	}
	defer func() {
		for _, f := range followers {
			f.conn.Close()
		}
	}()
	time.Sleep(time.Second)
	before, began := server.used(), time.Now()
	if err := load.stream(t, sessions, followers); err != nil {
		return out, err
	}
	took, after := time.Since(began), server.used()
	var all, half []time.Duration
	for _, f := range followers {
		all, half = append(all, f.took...), append(half, f.took[load.chunks/2:]...)
	}
	chunks := float64(load.sessions * load.chunks)
	out = figures{
		cpuPer1000:  ms(after.cpu-before.cpu) / float64(load.delivered()) * 1000,
		p99Half:     ms(percentile(half, 99)),
		overIdeal:   ms(took - load.ideal()),
		writtenEach: float64(after.written-before.written) / chunks,
	}
	out[p50Took], out[p99Took] = ms(percentile(all, 50)), ms(percentile(all, 99))
	return out, nil
}

func measureSends(server *process, t target) (out figures, err error) {
	loop := &sendLoop{target: t}
	var before, after usage
	if err := loop.run(func(wait func()) error {
		before = server.used()
		wait()
		after = server.used()
		return nil
	}); err != nil {
		return out, err
	}
	sends := float64(len(loop.took))
	out = figures{
		cpuPer1000:  ms(after.cpu-before.cpu) / sends * 1000,
		writtenEach: float64(after.written-before.written) / sends,
		perSecond:   sends / sendFor.Seconds(),
	}
	out[p50Took], out[p99Took] = ms(percentile(loop.took, 50)), ms(percentile(loop.took, 99))
	return out, nil
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// percentile sorts the durations.
func percentile(all []time.Duration, percent int) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)*percent/100]
}

// medianOf returns the median of a figure.
func (r floorRuns) medianOf(who partner, f figure) float64 {
	var values []float64
	for _, run := range r[who] {
		values = append(values, run[f])
	}
	return median(values)
}

// ratios returns the ratio of each pair.
func (r floorRuns) ratios(to partner, f figure) (ratios []float64) {
	for i := range r[to] {
		ratios = append(ratios, r[theProduct][i][f]/r[to][i][f])
	}
	return ratios
}

// showRatios returns the median and the spread.
func showRatios(ratios []float64) string {
	if len(ratios) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
}

// report adds the aims of a work to a table and compares the figures with them.
func (r floorRuns) report(work floorWorkload, t *table) (verdicts []verdict) {
	for _, aim := range work.aims {
		holds := "not compared"
		if len(r[aim.to]) > 0 {
			v := aim.verdict(work, r)
			verdicts, holds = append(verdicts, v), yesOrNo(v.met)
		}
		base := ""
		if len(r[theBase]) > 0 {
			base = aim.figure.format(r.medianOf(theBase, aim.figure))
		}
		t.add(work.name, aim.figure.String(), aim.figure.format(r.medianOf(theFloor, aim.figure)), aim.figure.format(r.medianOf(theProduct, aim.figure)), base,
			showRatios(r.ratios(theFloor, aim.figure)), showRatios(r.ratios(theBase, aim.figure)), aim.limit(), holds)
	}
	return verdicts
}

// limit returns the aim as text.
func (a floorAim) limit() string {
	want, limit := "at most", fmt.Sprintf("%g × %s", a.most, partnerNames[a.to])
	if a.atLeast {
		want = "at least"
	}
	if a.to == theProduct {
		limit = a.figure.format(a.most)
	}
	return want + " " + limit
}

// verdict compares the runs with the aim.
func (a floorAim) verdict(work floorWorkload, r floorRuns) verdict {
	got := r.medianOf(theProduct, a.figure)
	shown := a.figure.format(got)
	if a.to != theProduct {
		got = median(r.ratios(a.to, a.figure))
		shown = fmt.Sprintf("%.2f", got)
	}
	met := got <= a.most
	if a.atLeast {
		met = got >= a.most
	}
	return verdict{fmt.Sprintf("%s: %s %s", work.name, a.figure, a.limit()), met, shown}
}

// list adds every figure of a work to a table.
func (r floorRuns) list(work floorWorkload, t *table) {
	for who, name := range partnerNames {
		if len(r[who]) == 0 {
			continue
		}
		row := []string{work.name, name}
		for f := range figureCount {
			v := r.medianOf(partner(who), f)
			cell := f.format(v)
			if v == 0 {
				cell = ""
			}
			row = append(row, cell)
		}
		t.add(row...)
	}
}
