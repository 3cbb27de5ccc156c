package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// serveProxy is the child process that Loquat's relay is compared with: the least that a proxy in Go
// does.
func serveProxy() error {
	o, err := readChildOptions()
	if err != nil {
		return err
	}
	backend, err := url.Parse(strings.TrimSuffix(o.backend, "/v1"))
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(backend) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 2000},
	}
	return serveChild(o.listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Without it, the server closes the request's body when the answer begins. The transport may still look for the body's end
		// then, and cuts the answer.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	}))
}

// relayLoads are the loads of the section. The streams of each begin at equal distances, the last
// before the first has ended.
var relayLoads = []relayLoad{
	{streams: 1, rate: 50, chunks: 20, begin: 0, rounds: 20},
	{streams: 200, rate: 10, chunks: 50, begin: 2 * time.Second, rounds: 1},
	{streams: 1000, rate: 3, chunks: 20, begin: 5 * time.Second, rounds: 1},
}

// relayLoad is a number of streams, each with as many chunks at a rate per second.
type relayLoad struct {
	streams, rate, chunks int
	begin                 time.Duration // in which all streams begin
	rounds                int           // how often all of that is done
}

// The aims: what the relay adds to the proxy, as the median of the pairs.
const (
	mostAdded = 0.15 // milliseconds, of the median
	mostCPU   = 1.5  // times the proxy's
)

// relayFigures are the results of one run, in milliseconds.
type relayFigures struct{ first50, first99, chunk50, chunk99, cpu float64 }

func benchRelay(w io.Writer) (verdicts []verdict, err error) {
	f, err := startFloor()
	if err != nil {
		return nil, err
	}
	defer f.stop()
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f.programs[theFloor] = program{path: own, dir: f.dir, env: []string{floorEnv + "=proxy"}}
	t := newTable("streams", "figure", "proxy", "Loquat", "added", "aim", "met")
	for _, load := range relayLoads {
		var runs [2][]relayFigures
		for pair := range floorPairs {
			for turn := range 2 {
				who := (pair + turn) % 2
				got, err := f.relayRun([]partner{theFloor, theProduct}[who], load)
				if err != nil {
					return nil, fmt.Errorf("%d streams through %s: %w", load.streams, []string{"the proxy", "Loquat"}[who], err)
				}
				runs[who] = append(runs[who], got)
			}
		}
		verdicts = append(verdicts, load.report(t, runs)...)
	}
	return verdicts, t.print(w)
}

// relayRun measures a program once.
func (f *floorBench) relayRun(who partner, load relayLoad) (relayFigures, error) {
	server, remove, err := f.serve(who)
	if err != nil {
		return relayFigures{}, err
	}
	defer remove()
	if _, _, err := (relayLoad{streams: 4, rate: 50, chunks: 5, rounds: 5}).run(server); err != nil {
		return relayFigures{}, err
	}
	before := server.used()
	first, chunks, err := load.run(server)
	if err != nil {
		return relayFigures{}, err
	}
	cpu := server.used().cpu - before.cpu
	return relayFigures{
		first50: ms(percentile(first, 50)), first99: ms(percentile(first, 99)),
		chunk50: ms(percentile(chunks, 50)), chunk99: ms(percentile(chunks, 99)),
		cpu: ms(cpu) / float64(len(chunks)) * 1000,
	}, nil
}

// run opens all streams and returns how long the first chunk of each took from its request, and how
// long each chunk took from its making.
func (l relayLoad) run(server *process) (first, chunks []time.Duration, err error) {
	var mu sync.Mutex
	for range l.rounds {
		var streams sync.WaitGroup
		for i := range l.streams {
			streams.Go(func() {
				time.Sleep(l.begin * time.Duration(i) / time.Duration(l.streams))
				took, began, streamErr := l.stream(strings.TrimPrefix(server.url, "http://"))
				mu.Lock()
				defer mu.Unlock()
				first, chunks, err = append(first, began), append(chunks, took...), errors.Join(err, streamErr)
			})
		}
		streams.Wait()
	}
	return first, chunks, err
}

// stream makes one request and reads its stream.
func (l relayLoad) stream(address string) (took []time.Duration, first time.Duration, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return nil, 0, err
	}
	defer conn.Close()
	body := fmt.Sprintf(`{"model":"bench","stream":true,"messages":[{"role":"user","content":%q}]}`, orderOf(l.chunks, l.rate))
	began := time.Now()
	if _, err := fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", address, len(body), body); err != nil {
		return nil, 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	f := &markFollower{}
	buf := make([]byte, 4<<10)
	for {
		n, err := resp.Body.Read(buf)
		now := time.Now()
		if markErr := f.readMarks(buf[:n], now); markErr != nil {
			return nil, 0, markErr
		}
		if first == 0 && f.next > 0 {
			first = now.Sub(began)
		}
		if err == io.EOF || bytes.Contains(buf[:n], []byte("[DONE]")) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("after %d chunks: %w", len(f.took), err)
		}
	}
	if len(f.took) != l.chunks {
		return nil, 0, fmt.Errorf("%s: %d of %d chunks came", resp.Status, len(f.took), l.chunks)
	}
	return f.took, first, nil
}

// report adds the figures of a load to a table and compares them with the aims.
func (l relayLoad) report(t *table, runs [2][]relayFigures) (verdicts []verdict) {
	for _, row := range []struct {
		name  string
		of    func(relayFigures) float64
		most  float64 // 0: there is no aim
		ratio bool
	}{
		{"first chunk, p50 ms", func(f relayFigures) float64 { return f.first50 }, mostAdded, false},
		{"first chunk, p99 ms", func(f relayFigures) float64 { return f.first99 }, 0, false},
		{"each chunk, p50 ms", func(f relayFigures) float64 { return f.chunk50 }, mostAdded, false},
		{"each chunk, p99 ms", func(f relayFigures) float64 { return f.chunk99 }, 0, false},
		{"CPU ms per 1,000 chunks", func(f relayFigures) float64 { return f.cpu }, mostCPU, true},
	} {
		var values [2][]float64
		var added []float64
		for i := range runs[0] {
			proxy, product := row.of(runs[0][i]), row.of(runs[1][i])
			values[0], values[1] = append(values[0], proxy), append(values[1], product)
			if row.ratio {
				added = append(added, product/proxy)
			} else {
				added = append(added, product-proxy)
			}
		}
		unit, got := " ms", median(added)
		if row.ratio {
			unit = " times"
		}
		aim, met := "", ""
		if row.most > 0 {
			v := verdict{fmt.Sprintf("%d relayed streams: %s, at most %g%s", l.streams, row.name, row.most, unit), got <= row.most, fmt.Sprintf("%.3f%s", got, unit)}
			verdicts = append(verdicts, v)
			aim, met = fmt.Sprintf("at most %g%s", row.most, unit), yesOrNo(v.met)
		}
		t.add(fmt.Sprint(l.streams), row.name, fmt.Sprintf("%.3f", median(values[0])), fmt.Sprintf("%.3f", median(values[1])), fmt.Sprintf("%.3f%s", got, unit), aim, met)
	}
	return verdicts
}
