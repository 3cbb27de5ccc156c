package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"loquat"
	"loquat/internal/client"
)

// The parameters of the section history.
const (
	historyShort, historyLong = 10, 10_000 // messages
	historyShorts             = 20         // short sessions, so that they stay short
	historyPage               = 50
	historyCalls              = 40 // of each kind in each round
	historySends              = 8
	historyStarts             = 5

	maxSendToBase   = 0.25
	maxHistoryRatio = 1.2
)

// benchHistory measures the real program with short and long sessions, and an older version
// in turn if one is given.
func benchHistory(w io.Writer) ([]verdict, error) {
	arrivals := make(chan arrival, 1)
	backend := httptest.NewServer(recordArrivals(arrivals))
	defer backend.Close()
	f, err := startFloor()
	if err != nil {
		return nil, err
	}
	defer f.stop()
	names := []string{"Loquat", "older version"}
	var all []*history
	for i, who := range []partner{theProduct, theBase} {
		if f.programs[who].path == "" {
			continue
		}
		h := &history{program: f.programs[who], name: names[i], backend: backend.URL, arrivals: arrivals, got: map[string][]float64{}}
		if err := h.fill(); err != nil {
			return nil, fmt.Errorf("%s: %w", h.name, err)
		}
		defer func() { h.long.stop() }()
		all = append(all, h)
	}
	for pair := range floorPairs {
		for turn := range all {
			h := all[(pair+turn)%len(all)]
			if err := h.round(); err != nil {
				return nil, fmt.Errorf("%s: %w", h.name, err)
			}
		}
	}
	return reportHistory(w, all)
}

// arrival is a request at the backend.
type arrival struct{ first, last time.Time }

// recordArrivals returns a backend that records when the first and the last byte of a request
// arrive.
func recordArrivals(arrivals chan<- arrival) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := arrival{first: time.Now()}
		_, _ = io.Copy(io.Discard, r.Body)
		a.last = time.Now()
		arrivals <- a
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n")
	})
}

// history is one program with a short and a long data directory. Its figures are medians of
// rounds, in milliseconds, by name.
type history struct {
	program  program
	name     string
	backend  string
	arrivals <-chan arrival

	long   *process
	target target
	shorts []string
	longID string
	next   int // of the short sessions
	got    map[string][]float64
}

// dir returns the name of the data directory with so many messages in its longest session.
func (h *history) dir(messages int) string {
	return fmt.Sprintf("history-%s-%d", strings.Fields(h.name)[0], messages)
}

// serve starts the program with a data directory.
func (h *history) serve(messages int) (*process, error) {
	return h.program.serve(fmt.Sprintf(floorConfig, h.backend), h.dir(messages))
}

// fill makes both data directories. The server of the long one keeps running.
func (h *history) fill() error {
	for _, messages := range []int{historyShort, historyLong} {
		server, err := h.serve(messages)
		if err != nil {
			return err
		}
		t := newTarget(server.url)
		id, err := t.createSession(sessionOf(messages))
		if err != nil {
			return err
		}
		if messages == historyShort {
			server.stop()
			continue
		}
		h.long, h.target, h.longID = server, t, id
	}
	for range historyShorts {
		id, err := h.target.createSession(sessionOf(historyShort))
		if err != nil {
			return err
		}
		h.shorts = append(h.shorts, id)
	}
	return nil
}

// sessionOf returns the body that creates a session with messages.
func sessionOf(messages int) string {
	message := fmt.Sprintf(`{"role":"user","content":%q},`, benchMessage)
	return `{"messages":[` + strings.TrimSuffix(strings.Repeat(message, messages), ",") + `]}`
}

func (h *history) short() string {
	h.next++
	return h.shorts[h.next%len(h.shorts)]
}

// historyCall is a call to time.
type historyCall struct {
	name string
	call func() error
}

// round measures everything once. The two calls of a pair take turns.
func (h *history) round() error {
	for _, pair := range [][2]historyCall{
		{
			{"first page", func() error { return h.get("/sessions/%s/messages?limit=%d&from=0", h.longID, historyPage) }},
			{"last page", func() error {
				return h.get("/sessions/%s/messages?limit=%d&from=%d", h.longID, historyPage, historyLong-historyPage)
			}},
		},
		{
			{"append, short", func() error { return h.append(h.short()) }},
			{"append, long", func() error { return h.append(h.longID) }},
		},
		{
			{"poll, short", func() error { return h.get("/events?session=omit&session_id=%s", h.short()) }},
			{"poll, long", func() error { return h.get("/events?session=omit&session_id=%s", h.longID) }},
		},
	} {
		if err := h.time(historyCalls, pair); err != nil {
			return err
		}
	}
	if err := h.sends("short", h.short); err != nil {
		return err
	}
	if err := h.sends("long", func() string { return h.longID }); err != nil {
		return err
	}
	return h.starts()
}

// time notes the median times of two calls.
func (h *history) time(n int, pair [2]historyCall) error {
	var took [2][]time.Duration
	for range n {
		for i, c := range pair {
			began := time.Now()
			if err := c.call(); err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, c := range pair {
		h.got[c.name] = append(h.got[c.name], ms(percentile(took[i], 50)))
	}
	return nil
}

func (h *history) get(format string, args ...any) error {
	path := fmt.Sprintf(format, args...)
	resp, err := h.target.client.Get(h.target.url + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.300s", path, resp.Status, text)
	}
	return err
}

func (h *history) append(session string) error {
	_, err := h.target.post("/sessions/"+session+"/messages", fmt.Sprintf(`{"role":"user","content":%q}`, benchMessage), http.StatusCreated)
	return err
}

// sends measures the time from a send until its first and its last byte reach the backend.
func (h *history) sends(kind string, session func() string) error {
	var first, last []time.Duration
	for range historySends {
		began := time.Now()
		answer, err := h.target.post("/sessions/"+session()+"/send", `{"content":"go on"}`, http.StatusAccepted)
		if err != nil {
			return err
		}
		select {
		case a := <-h.arrivals:
			first, last = append(first, a.first.Sub(began)), append(last, a.last.Sub(began))
		case <-time.After(20 * time.Second):
			return fmt.Errorf("a send does not reach the backend: %s", answer)
		}
		if err := h.awaitEnd(answer); err != nil {
			return err
		}
	}
	h.got["send, first byte, "+kind] = append(h.got["send, first byte, "+kind], ms(percentile(first, 50)))
	h.got["send, last byte, "+kind] = append(h.got["send, last byte, "+kind], ms(percentile(last, 50)))
	return nil
}

// awaitEnd waits for the end of the request that a send started.
func (h *history) awaitEnd(answer []byte) error {
	var sent loquat.SendResult
	if err := json.Unmarshal(answer, &sent); err != nil {
		return err
	}
	c, err := client.New(h.target.url, client.Options{HTTPClient: h.target.client})
	if err != nil {
		return err
	}
	for range 2000 {
		r, err := c.Request(context.Background(), sent.RequestID)
		if err != nil || r.Status.Ended() {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
	return fmt.Errorf("request %s does not end", sent.RequestID)
}

// starts measures the time until a server listens, with each directory in turn.
func (h *history) starts() error {
	h.long.stop()
	var took [2][]time.Duration
	for range historyStarts {
		for i, messages := range []int{historyShort, historyLong} {
			began := time.Now()
			server, err := h.serve(messages)
			if err != nil {
				return err
			}
			took[i] = append(took[i], time.Since(began))
			server.stop()
		}
	}
	for i, name := range []string{"start-up, short", "start-up, long"} {
		h.got[name] = append(h.got[name], ms(percentile(took[i], 50)))
	}
	server, err := h.serve(historyLong)
	if err != nil {
		return err
	}
	h.use(server)
	return nil
}

func (h *history) use(server *process) {
	h.target.close()
	h.long, h.target = server, newTarget(server.url)
}

// compareRounds returns the ratios of two figures by round.
func compareRounds(a, b []float64) (ratios []float64) {
	for i := range a {
		ratios = append(ratios, a[i]/b[i])
	}
	return ratios
}

// historyRow is a row of the report: a figure, or its ratio to another figure.
type historyRow struct {
	name, figure, other string
	most                float64 // the aim; 0: none
	toBase              bool    // the aim is a ratio to the older version
}

var historyRows = []historyRow{
	{"send on 10,000 messages until its first byte reaches the backend", "send, first byte, long", "", maxSendToBase, true},
	{"send on 10,000 messages until its last byte reaches the backend", "send, last byte, long", "", 0, false},
	{"first and last page of 10,000 messages", "last page", "first page", maxHistoryRatio, false},
	{"append after 10 and 10,000 messages", "append, long", "append, short", maxHistoryRatio, false},
	{"poll after 10 and 10,000 messages", "poll, long", "poll, short", maxHistoryRatio, false},
	{"start-up after 10 and 10,000 messages", "start-up, long", "start-up, short", maxHistoryRatio, false},
}

func reportHistory(w io.Writer, all []*history) (verdicts []verdict, err error) {
	t := newTable("figure", "Loquat", "ratio", "older version", "its ratio", "Loquat, × older version", "aim", "holds")
	for _, row := range historyRows {
		product := all[0]
		ours, ratios := product.show(row)
		cells := []string{row.name, ours, showRatios(ratios), "", "", ""}
		if len(all) > 1 {
			base := all[1]
			theirs, their := base.show(row)
			toBase := compareRounds(product.got[row.figure], base.got[row.figure])
			cells = []string{row.name, ours, showRatios(ratios), theirs, showRatios(their), showRatios(toBase)}
			if row.toBase {
				ratios = toBase
			}
		}
		aim, holds := "", ""
		if row.most > 0 {
			aim, holds = fmt.Sprintf("at most %g", row.most), "not compared"
			if row.toBase {
				aim += " × older version"
			}
		}
		if row.most > 0 && len(ratios) > 0 {
			met := median(ratios) <= row.most
			holds = yesOrNo(met)
			verdicts = append(verdicts, verdict{row.name + ": " + aim, met, fmt.Sprintf("%.2f", median(ratios))})
		}
		t.add(append(cells, aim, holds)...)
	}
	fmt.Fprintf(w, "medians of %d rounds, the spread of the ratios in brackets\n\n", floorPairs)
	return verdicts, t.print(w)
}

// show returns the times of a row, and the ratios of its two figures if it has two.
func (h *history) show(row historyRow) (times string, ratios []float64) {
	times = fmt.Sprintf("%.2f ms", median(h.got[row.figure]))
	if row.other == "" {
		return times, nil
	}
	return fmt.Sprintf("%.2f and %s", median(h.got[row.other]), times), compareRounds(h.got[row.figure], h.got[row.other])
}
