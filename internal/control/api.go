package control

import (
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// handler is the whole URL space. Health and the console's files, which hold no data, are free; the rest goes through
// reader or writer.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.HandleFunc("GET /metrics", s.reader(promhttp.HandlerFor(s.deps.Gatherer, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, ErrorHandling: promhttp.ContinueOnError,
	}).ServeHTTP))
	get := func(pattern string, h func(v *statestore.View, r *http.Request) (any, error)) {
		mux.HandleFunc("GET "+pattern, s.reader(s.answer(h)))
	}
	get("/api/v1/mirrors", s.mirrors)
	get("/api/v1/mirrors/{mirror}", s.mirror)
	get("/api/v1/mirrors/{mirror}/history", s.history)
	for _, prefix := range []string{"", "/api/v1", "/api/v1/mirrors/{mirror}"} {
		get(prefix+"/partitions", s.partitions)
		get(prefix+"/groups", s.groups)
		get(prefix+"/events", s.events)
	}
	get("/api/v1/commands/{id}", s.outcome)
	mux.HandleFunc("POST /api/v1/ReadMirrorStates", s.reader(s.readStates))
	mux.HandleFunc("POST /api/v1/WriteMirrorStates", s.writer(s.writeStates))
	mux.HandleFunc("POST /api/v1/commands", s.writer(s.command))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, _ *http.Request) { writeError(w, http.StatusNotFound, errNotFound) })
	s.serveConsole(mux)
	return hardened(mux)
}

var (
	errNotFound = errors.New("no such path or method")
	errNoView   = errors.New("the state topic is not loaded yet: the destination was not reached")
)

func (s *Server) healthz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Write([]byte("ok\n"))
}

// readyz answers within two seconds, whatever the clusters do. Who may not read gets the verdict only.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 1500*time.Millisecond)
	defer cancel()
	ready := s.deps.Ready(ctx)
	code := http.StatusOK
	if !ready.Ready {
		code = http.StatusServiceUnavailable
	}
	if !s.cfg.Loopback && s.cfg.TokenFile != "" && !s.token.admits(r) {
		writeJSON(w, code, map[string]any{"ready": ready.Ready})
		return
	}
	writeJSON(w, code, ready)
}

// answer turns a read of the view into a handler.
func (s *Server) answer(h func(v *statestore.View, r *http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		v := s.deps.View()
		if v == nil {
			writeError(w, http.StatusServiceUnavailable, errNoView)
			return
		}
		body, err := h(v, r)
		if err != nil {
			writeError(w, statusOf(err), err)
			return
		}
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			writeZipped(w, body)
			return
		}
		writeJSON(w, http.StatusOK, body)
	}
}

// notFoundError is answered with 404, badRequestError with 400.
type (
	notFoundError   struct{ error }
	badRequestError struct{ error }
)

func statusOf(err error) int {
	if _, ok := errors.AsType[notFoundError](err); ok {
		return http.StatusNotFound
	}
	if _, ok := errors.AsType[badRequestError](err); ok {
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}

// mirrorSummary is an item of /api/v1/mirrors.
type mirrorSummary struct {
	MirrorRow
	Lag        int64   `json:"lag"`
	LagSeconds float64 `json:"lagSeconds"`
	Finding    string  `json:"finding,omitempty"`
	Owner      string  `json:"owner"` // coordinator of the mirror's own work

	Failures []failureRow `json:"failures"` // of the metadata refresh, by step
	Notes    []string     `json:"notes"`    // what it leaves alone, and why
}

// failureRow is what the metadata refresh could not do when it last tried.
type failureRow struct {
	Step    string    `json:"step"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	Since   time.Time `json:"since"`
}

func summaryOf(v *statestore.View, m statestore.Mirror) mirrorSummary {
	now := sampleOf(v, m.Name, time.Time{})
	row := mirrorSummary{MirrorRow: MirrorRowOf(v, m), Lag: now.Lag, LagSeconds: now.LagSeconds, Finding: m.Finding.Message, Failures: []failureRow{}}
	status := v.RefreshStatus(m.Name)
	row.Notes = append([]string{}, status.Notes...)
	for _, f := range status.Failures {
		row.Failures = append(row.Failures, failureRow{f.Step, f.Message, f.Count, time.UnixMilli(f.SinceMillis).UTC()})
	}
	if n := v.Shards(); n > 0 {
		if claim, ok := v.Claim(mirror.ShardOfMirror(m.Name, n)); ok && !claim.Released {
			row.Owner = claim.Owner
		}
	}
	return row
}

func (s *Server) mirrors(v *statestore.View, _ *http.Request) (any, error) {
	rows := []mirrorSummary{}
	for _, m := range v.Mirrors() {
		rows = append(rows, summaryOf(v, m))
	}
	return rows, nil
}

// mirrorDetail is /api/v1/mirrors/{m}. A definition never holds a secret, only where one lies.
type mirrorDetail struct {
	mirrorSummary
	Security         string     `json:"security"` // protocol and mechanism
	TopicsInclude    []string   `json:"topicsInclude"`
	TopicsExclude    []string   `json:"topicsExclude"`
	GroupsInclude    []string   `json:"groupsInclude"`
	GroupsExclude    []string   `json:"groupsExclude"`
	Transactions     string     `json:"transactions"`
	TransactionsMode string     `json:"transactionsMode"`
	Fillers          string     `json:"fillers"`
	FillersMode      string     `json:"fillersMode"`
	EpochFencing     string     `json:"epochFencing"`
	ReadOnly         string     `json:"readOnly"`
	OnLostRange      string     `json:"onLostRange"`
	Throttle         int64      `json:"throttle"`
	Declared         bool       `json:"declared"`
	TopicList        []topicRow `json:"topicList"`
}

// topicRow is what is wished for a topic.
type topicRow struct {
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	Wish       string `json:"wish"`
	ByCommand  bool   `json:"byCommand"`
	Promoted   bool   `json:"promoted"`
	Message    string `json:"message,omitempty"`
	Finding    string `json:"finding,omitempty"`
}

func (s *Server) mirror(v *statestore.View, r *http.Request) (any, error) {
	m, err := mirrorOf(v, r)
	if err != nil {
		return nil, err
	}
	security := m.Source.Security.Protocol
	if m.Source.Security.SASL.Mechanism != "" {
		security += " " + m.Source.Security.SASL.Mechanism
	}
	d := mirrorDetail{
		mirrorSummary: summaryOf(v, m), Security: security,
		TopicsInclude: m.TopicsInclude, TopicsExclude: m.TopicsExclude, GroupsInclude: m.GroupsInclude, GroupsExclude: m.GroupsExclude,
		Transactions: m.Transactions, TransactionsMode: m.TransactionsMode, Fillers: m.Fillers, FillersMode: m.FillersMode,
		EpochFencing: m.EpochFencing, ReadOnly: m.ReadOnly, OnLostRange: m.OnLostRange, Throttle: m.Throttle, Declared: m.Declared,
		TopicList: []topicRow{},
	}
	for _, t := range v.Topics(m.Name) {
		d.TopicList = append(d.TopicList, topicRow{t.Name, t.Partitions, t.Wish.String(), t.ByCommand, t.Promoted, t.Message, t.Finding.Message})
	}
	return d, nil
}

func mirrorOf(v *statestore.View, r *http.Request) (statestore.Mirror, error) {
	name := r.PathValue("mirror")
	m, ok := v.Mirror(name)
	if !ok {
		return m, noMirror(name)
	}
	return m, nil
}

func noMirror(name string) error { return notFoundError{fmt.Errorf("no mirror %q", name)} }

// selected are the mirrors that a request means: the path's, the query's, or all.
func selected(v *statestore.View, r *http.Request) ([]string, error) {
	if r.PathValue("mirror") != "" {
		m, err := mirrorOf(v, r)
		return []string{m.Name}, err
	}
	if name := r.URL.Query().Get("mirror"); name != "" {
		if _, ok := v.Mirror(name); !ok {
			return nil, noMirror(name)
		}
		return []string{name}, nil
	}
	var names []string
	for _, m := range v.Mirrors() {
		names = append(names, m.Name)
	}
	return names, nil
}

// measureTime bounds asking the destination for an answer over HTTP, which then is as of the last report.
const measureTime = time.Second

// partitions lists partitions; the query may narrow them: topic, state. Nobody reports the log ends of those that are
// STOPPED, which others write to: they are read now.
func (s *Server) partitions(v *statestore.View, r *http.Request) (any, error) {
	names, err := selected(v, r)
	if err != nil {
		return nil, err
	}
	topic, state := r.URL.Query().Get("topic"), strings.ToUpper(r.URL.Query().Get("state"))
	if state != "" && !slices.ContainsFunc(mirror.States(), func(s mirror.State) bool { return s.String() == state }) {
		return nil, badRequestError{fmt.Errorf("unknown state %q: the states are %v", state, mirror.States())}
	}
	rows := []PartitionRow{}
	for _, name := range names {
		for _, row := range PartitionRows(v, name) {
			if (topic == "" || row.Topic == topic) && (state == "" || row.State == state) {
				rows = append(rows, row)
			}
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), measureTime)
	defer cancel()
	if s.deps.Destination != nil {
		measure(ctx, s.deps.Destination, rows, func(r PartitionRow) bool { return r.State == mirror.Stopped.String() })
	}
	return rows, nil
}

func (s *Server) groups(v *statestore.View, r *http.Request) (any, error) {
	names, err := selected(v, r)
	if err != nil {
		return nil, err
	}
	rows := []GroupRow{}
	for _, name := range names {
		rows = append(rows, GroupRows(v, name)...)
	}
	return rows, nil
}

// eventsShown is how many events are listed unless a limit is given.
const eventsShown = 500

// events lists what happened, also to a mirror that has been deleted since.
func (s *Server) events(v *statestore.View, r *http.Request) (any, error) {
	limit := eventsShown
	if text := r.URL.Query().Get("limit"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return nil, badRequestError{fmt.Errorf("limit must be a number above 0, got %q", text)}
		}
		limit = min(n, keptEvents)
	}
	name := cmp.Or(r.PathValue("mirror"), r.URL.Query().Get("mirror"))
	rows := eventRows(s.deps.Events.Newest(limit, func(ev mirror.Event) bool { return name == "" || ev.Mirror == name }))
	if _, known := v.Mirror(name); name != "" && len(rows) == 0 && !known {
		return nil, noMirror(name)
	}
	return rows, nil
}

func (s *Server) history(v *statestore.View, r *http.Request) (any, error) {
	m, err := mirrorOf(v, r)
	if err != nil {
		return nil, err
	}
	return s.deps.History.Of(m.Name), nil
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(body)
}

func writeZipped(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Encoding", "gzip")
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // errs on an illegal level only
	json.NewEncoder(z).Encode(body)
	z.Close()
}

func writeError(w http.ResponseWriter, code int, err error) {
	writeJSON(w, code, map[string]string{"error": err.Error()})
}
