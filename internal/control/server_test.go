package control

import (
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

var topicID = mirror.TopicID{1, 2, 3}

func partition(index int32) mirror.Partition {
	return mirror.Partition{Mirror: "east", TopicID: topicID, Index: index}
}

// testView holds mirror east with one topic of three partitions: mirroring, failed and stopped.
func testView() *statestore.View {
	d := mirror.DefaultDefinition("east")
	d.Source = mirror.Connection{BootstrapServers: []string{"a:1", "b:2"}, Security: mirror.Security{
		Protocol: "SASL_SSL",
		SASL:     mirror.SASL{Mechanism: "PLAIN", Username: "user", Password: "${file:/etc/secret}"},
	}}
	state := func(index int32, s mirror.State) statestore.PartitionState {
		return statestore.PartitionState{Partition: partition(index), Topic: "orders", State: s, Previous: mirror.LogTruncation}
	}
	failed := state(1, mirror.Failed)
	failed.RetryAttempt, failed.ErrorMessage = -1, "<b>diverged</b>"
	records := []statestore.Record{
		statestore.Mirror{Definition: d, LearntClusterID: "src-id", TransactionsMode: mirror.Exact, FillersMode: mirror.Markers},
		statestore.Topic{Mirror: "east", Name: "orders", SourceID: topicID, Partitions: 3, Wish: mirror.Mirroring},
		statestore.Topic{Mirror: "east", Name: "refused", Message: "replication factor 3, but 1 broker"},
		state(0, mirror.Mirroring), failed, state(2, mirror.Stopped),
		statestore.LastMirrorEpoch{Partition: partition(2), Position: mirror.Position{LeaderEpoch: 4, Offset: 70}},
		statestore.GroupStatus{Mirror: "east", Group: "g", Type: "classic", Rows: []statestore.GroupRow{
			{Topic: "orders", Partition: 0, SourceOffset: 5, DestinationOffset: 5, Status: "synced"},
		}},
	}
	for i := range int32(3) {
		records = append(records, statestore.ShardReport{ShardIndex: mirror.ShardOf(partition(i), 4), Owner: "one", Positions: []statestore.ReportedPosition{
			{Partition: partition(i), SourceOffset: 100, DestinationOffset: 70, LagMillis: 1500},
		}})
	}
	for shard := range int32(4) {
		records = append(records, statestore.ShardClaim{ShardIndex: shard, Number: 1, Owner: "one"})
	}
	return statestore.ViewOf(4, records...)
}

// served is a running server and what it was asked to do.
type served struct {
	*Server
	base  string
	ready Readiness
	view  *statestore.View
	wrote []mirror.WriteMirrorStatesRequest
	cmds  []mirror.Command
}

func serve(t *testing.T, cfg ServerConfig) *served {
	t.Helper()
	s := &served{view: testView(), ready: Readiness{Ready: true, Instance: "one"}}
	if cfg.Listen == "" {
		cfg.Listen, cfg.Loopback = "127.0.0.1:0", true
	}
	events := new(Events)
	events.Add(mirror.Event{At: time.Now(), Mirror: "east", Topic: "orders", Partition: 1, Name: "state changed", From: mirror.Mirroring, To: mirror.Failed})
	var err error
	s.Server, err = OpenServer(cfg, ServerDeps{
		Ready: func(context.Context) Readiness { return s.ready },
		View:  func() *statestore.View { return s.view },
		Read: func(_ context.Context, req mirror.ReadMirrorStatesRequest) mirror.ReadMirrorStatesResponse {
			return mirror.ReadMirrorStatesResponse{Topics: []mirror.ReadTopicResult{{Name: req.Topics[0].Name}}}
		},
		Write: func(_ context.Context, req mirror.WriteMirrorStatesRequest) mirror.WriteMirrorStatesResponse {
			s.wrote = append(s.wrote, req)
			return mirror.WriteMirrorStatesResponse{}
		},
		Submit: func(_ context.Context, cmd mirror.Command) error {
			s.cmds = append(s.cmds, cmd)
			return nil
		},
		Events: events, History: new(History), Gatherer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})
	s.base = "http://" + s.Addr()
	return s
}

func tokenFile(t *testing.T, token string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s *served) do(t *testing.T, method, path, token, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.base+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(data)
}

func get[T any](t *testing.T, s *served, path string) (out T) {
	t.Helper()
	code, body := s.do(t, http.MethodGet, path, "", "")
	if code != http.StatusOK {
		t.Fatalf("%s: %d %s", path, code, body)
	}
	if err := json.Unmarshal([]byte(body), &out); err != nil {
		t.Fatalf("%s: %v: %s", path, err, body)
	}
	return out
}

func TestPartitionsAsOperatorsSeeThem(t *testing.T) {
	s := serve(t, ServerConfig{})
	for _, path := range []string{"/partitions", "/api/v1/partitions", "/api/v1/mirrors/east/partitions"} {
		rows := get[[]PartitionRow](t, s, path)
		if len(rows) != 4 {
			t.Fatalf("%s: %d rows, want 4: %+v", path, len(rows), rows)
		}
		want := []PartitionRow{
			{"east", "orders", 0, 100, 70, 30, 1.5, "MIRRORING", "LOG_TRUNCATION", 0, "", -1, -1, "one", false},
			{"east", "orders", 1, 100, 70, 30, 1.5, "FAILED", "LOG_TRUNCATION", -1, "<b>diverged</b>", -1, -1, "one", false},
			{"east", "orders", 2, 100, 70, -1, -1, "STOPPED", "LOG_TRUNCATION", 0, "", 4, 70, "one", false},
			{"east", "refused", -1, -1, -1, -1, -1, "UNKNOWN", "", 0, "replication factor 3, but 1 broker", -1, -1, "", false},
		}
		for i := range want {
			if rows[i] != want[i] {
				t.Errorf("%s\n got %+v\nwant %+v", path, rows[i], want[i])
			}
		}
	}
	if rows := get[[]PartitionRow](t, s, "/partitions?state=failed"); len(rows) != 1 || rows[0].Partition != 1 {
		t.Errorf("by state: %+v", rows)
	}
	if rows := get[[]PartitionRow](t, s, "/partitions?topic=other"); len(rows) != 0 {
		t.Errorf("by topic: %+v", rows)
	}
	if code, body := s.do(t, http.MethodGet, "/partitions?state=BAD", "", ""); code != 400 || !strings.Contains(body, "EPOCH_FENCING") {
		t.Errorf("by a state that there is not: %d %s", code, body)
	}
}

func TestMirrorsGroupsAndEvents(t *testing.T) {
	s := serve(t, ServerConfig{})
	mirrors := get[[]mirrorSummary](t, s, "/api/v1/mirrors")
	if len(mirrors) != 1 || mirrors[0].SourceBootstrap != "a:1,b:2" || mirrors[0].Lag != 60 || mirrors[0].States["FAILED"] != 1 || mirrors[0].Owner != "one" {
		t.Errorf("mirrors: %+v", mirrors)
	}
	detail := get[mirrorDetail](t, s, "/api/v1/mirrors/east")
	if detail.Security != "SASL_SSL PLAIN" || detail.TransactionsMode != "exact" || len(detail.TopicList) != 2 {
		t.Errorf("detail: %+v", detail)
	}
	for _, prefix := range []string{"", "/api/v1", "/api/v1/mirrors/east"} {
		if groups := get[[]GroupRow](t, s, prefix+"/groups"); len(groups) != 1 || groups[0].Status != "synced" {
			t.Errorf("%s groups: %+v", prefix, groups)
		}
		if events := get[[]EventRow](t, s, prefix+"/events"); len(events) != 1 || events[0].To != "FAILED" {
			t.Errorf("%s events: %+v", prefix, events)
		}
	}
	if code, body := s.do(t, http.MethodGet, "/api/v1/mirrors/absent", "", ""); code != 404 || !strings.Contains(body, "absent") {
		t.Errorf("absent mirror: %d %s", code, body)
	}
	for path, want := range map[string]int{
		"/api/v1/partitions?mirror=nope": 404, "/groups?mirror=nope": 404, "/api/v1/events?mirror=nope": 404, "/api/v1/mirrors/nope/events": 404,
		"/api/v1/events?limit=abc": 400, "/events?limit=0": 400, "/events?limit=-1": 400, "/events?limit=1000000": 200, "/events?mirror=east&limit=3": 200,
	} {
		if code, body := s.do(t, http.MethodGet, path, "", ""); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	if code, _ := s.do(t, http.MethodGet, "/api/v1/nonsense", "", ""); code != 404 {
		t.Errorf("nonsense: %d", code)
	}
}

func TestChangesNeedTheToken(t *testing.T) {
	s := serve(t, ServerConfig{TokenFile: tokenFile(t, "opens"), Listen: "127.0.0.1:0", Loopback: true})
	write := `{"MirrorName":"east","Topics":[{"Name":"orders","Partitions":[{"PartitionIndex":0,"State":7}]}],"StoppedTopics":["x"]}`
	for _, token := range []string{"", "wrong", "open", "opens2"} {
		for _, path := range []string{"/api/v1/WriteMirrorStates", "/api/v1/commands"} {
			if code, _ := s.do(t, http.MethodPost, path, token, write); code != 401 {
				t.Errorf("%s with token %q: %d, want 401", path, token, code)
			}
		}
	}
	if len(s.wrote) != 0 {
		t.Fatal("something was written without the token")
	}
	if code, body := s.do(t, http.MethodPost, "/api/v1/WriteMirrorStates", "opens", write); code != 200 {
		t.Fatalf("with the token: %d %s", code, body)
	}
	if p := s.wrote[0].Topics[0].Partitions[0]; p.State != mirror.Failed || p.LastMirrorEpoch != -1 || s.wrote[0].StoppedTopics[0] != "x" {
		t.Errorf("got %+v", s.wrote[0])
	}
}

func TestWithoutATokenFileNothingCanBeChanged(t *testing.T) {
	s := serve(t, ServerConfig{})
	if code, body := s.do(t, http.MethodPost, "/api/v1/WriteMirrorStates", "", "{}"); code != 401 || !strings.Contains(body, "token_file") {
		t.Errorf("%d %s", code, body)
	}
}

func TestATokenIsReplacedByReload(t *testing.T) {
	file := tokenFile(t, "old")
	s := serve(t, ServerConfig{TokenFile: file, Listen: "127.0.0.1:0", Loopback: true})
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err == nil {
		t.Error("an empty token was taken")
	}
	if code, _ := s.do(t, http.MethodPost, "/api/v1/WriteMirrorStates", "old", `{"MirrorName":"east"}`); code != 200 {
		t.Errorf("after a refused reload: %d", code)
	}
	if err := os.WriteFile(file, []byte("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{"old": 401, "new": 200} {
		if code, _ := s.do(t, http.MethodPost, "/api/v1/WriteMirrorStates", token, `{"MirrorName":"east"}`); code != want {
			t.Errorf("token %s: %d, want %d", token, code, want)
		}
	}
}

func TestBadRequestsAreTold(t *testing.T) {
	s := serve(t, ServerConfig{TokenFile: tokenFile(t, "k"), Listen: "127.0.0.1:0", Loopback: true})
	for _, c := range []struct {
		name, path, body string
		code             int
		says             string
	}{
		{"no JSON", "/api/v1/ReadMirrorStates", "nonsense", 400, "invalid character"},
		{"empty", "/api/v1/ReadMirrorStates", "", 400, "EOF"},
		{"two values", "/api/v1/ReadMirrorStates", "{}{}", 400, "follows"},
		{"wrong type", "/api/v1/ReadMirrorStates", `{"MirrorName":1}`, 400, "MirrorName"},
		{"no mirror to read", "/api/v1/ReadMirrorStates", `{"Topics":[{"Name":"t"}]}`, 400, "MirrorName"},
		{"no mirror to write", "/api/v1/WriteMirrorStates", `{"StoppedTopics":["t"]}`, 400, "MirrorName"},
		{"unknown field of a read", "/api/v1/ReadMirrorStates", `{"MirrorName":"east","Topics":[{"Name":"t","Partition":[0]}]}`, 400, "Partition"},
		{"unknown field of a write", "/api/v1/WriteMirrorStates", `{"MirrorName":"east","Stopped":["t"]}`, 400, "Stopped"},
		{"no state", "/api/v1/WriteMirrorStates", `{"Topics":[{"Name":"t","Partitions":[{"PartitionIndex":3}]}]}`, 400, "t-3: State is missing"},
		{"too large", "/api/v1/ReadMirrorStates", `"` + strings.Repeat("x", maxBody) + `"`, 413, "too large"},
		{"unknown verb", "/api/v1/commands", `{"verb":"delete","mirror":"east","topics":["x"]}`, 400, "delete"},
		{"unknown mirror", "/api/v1/commands", `{"verb":"stop","mirror":"west","topics":["x"]}`, 404, "west"},
		{"no topics", "/api/v1/commands", `{"verb":"stop","mirror":"east"}`, 400, "topics"},
		{"bad pattern", "/api/v1/commands", `{"verb":"stop","mirror":"east","topics":["("]}`, 400, "RE2"},
		{"unknown field", "/api/v1/commands", `{"verb":"stop","mirror":"east","topics":["x"],"dry_run":true}`, 400, "dry_run"},
	} {
		code, body := s.do(t, http.MethodPost, c.path, "k", c.body)
		if code != c.code || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s, want %d and %q", c.name, code, body, c.code, c.says)
		}
	}
	if len(s.wrote)+len(s.cmds) != 0 {
		t.Error("a bad request had an effect")
	}
}

func TestFailoverFromTheConsole(t *testing.T) {
	s := serve(t, ServerConfig{TokenFile: tokenFile(t, "k"), Listen: "127.0.0.1:0", Loopback: true})
	code, body := s.do(t, http.MethodPost, "/api/v1/commands", "k", `{"verb":"stop","mirror":"east","topics":["ord.*"],"dryRun":true}`)
	var dry dryRun
	if err := json.Unmarshal([]byte(body), &dry); err != nil || code != 200 {
		t.Fatalf("%d %s %v", code, body, err)
	}
	if len(dry.Partitions) != 3 || dry.Lag != 60 || dry.LagSeconds != 1.5 || dry.Unknown != 0 || len(s.cmds) != 0 {
		t.Errorf("dry run: %+v, %d commands", dry, len(s.cmds))
	}
	code, body = s.do(t, http.MethodPost, "/api/v1/commands", "k", `{"verb":"stop","mirror":"east","topics":["ord.*"],"drain":true}`)
	var accepted struct{ ID string }
	if err := json.Unmarshal([]byte(body), &accepted); err != nil || code != 202 {
		t.Fatalf("%d %s %v", code, body, err)
	}
	if cmd := s.cmds[0]; cmd.Verb != mirror.VerbStop || !cmd.Drain || cmd.Topics[0] != "ord.*" || cmd.AtMillis == 0 {
		t.Errorf("submitted %+v", cmd)
	}
	if row := get[outcomeRow](t, s, "/api/v1/commands/"+accepted.ID); row.Done {
		t.Errorf("outcome before there is one: %+v", row)
	}
	s.view = statestore.ViewOf(4, statestore.CommandOutcome{Outcome: mirror.Outcome{
		ID: s.cmds[0].ID, Mirror: "east",
		Topics: []mirror.TopicOutcome{{Topic: "orders", Refused: true, Message: "why"}},
	}})
	if row := get[outcomeRow](t, s, "/api/v1/commands/"+accepted.ID); !row.Done || row.Topics[0].Message != "why" {
		t.Errorf("outcome: %+v", row)
	}
}

func TestHealthNeverDependsOnTheView(t *testing.T) {
	s := serve(t, ServerConfig{})
	s.view, s.ready = nil, Readiness{WaitingFor: "the destination"}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/": 200, "/api/v1/mirrors": 503} {
		if code, body := s.do(t, http.MethodGet, path, "", ""); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
}

func TestOffLoopbackReadingNeedsTheToken(t *testing.T) {
	s := serve(t, ServerConfig{TokenFile: tokenFile(t, "k"), Listen: "127.0.0.1:0"}) // as if others could connect
	s.ready.Destination.Error = "10.1.2.3:9092 refused"
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/": 200, "/metrics": 401, "/partitions": 401, "/api/v1/mirrors": 401} {
		code, body := s.do(t, http.MethodGet, path, "", "")
		if code != want || strings.Contains(body, "10.1.2.3") {
			t.Errorf("%s: %d %s, want %d and no addresses", path, code, body, want)
		}
	}
	if code, _ := s.do(t, http.MethodGet, "/partitions", "k", ""); code != 200 {
		t.Errorf("with the token: %d", code)
	}
}

func TestForeignHostNamesAreRefusedOnLoopback(t *testing.T) {
	s := serve(t, ServerConfig{})
	for host, want := range map[string]int{"evil.example": 403, "localhost:1": 200, "[::1]:2": 200, "127.0.0.1": 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/api/v1/mirrors", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("Host %s: %d, want %d", host, resp.StatusCode, want)
		}
	}
}

func TestNothingShownHoldsTheSecretOrIsFetchedFromElsewhere(t *testing.T) {
	s := serve(t, ServerConfig{})
	for _, path := range []string{"/", "/console.js", "/console.css", "/api/v1/mirrors", "/api/v1/mirrors/east", "/readyz", "/debug/pprof/", "/debug/vars"} {
		_, body := s.do(t, http.MethodGet, path, "", "")
		if strings.Contains(body, "/etc/secret") {
			t.Errorf("%s tells where a secret lies", path)
		}
		if strings.Contains(body, "https://") || strings.Contains(strings.ReplaceAll(body, "http://www.w3.org/", ""), "http://") {
			t.Errorf("%s refers to something outside", path)
		}
	}
	for _, path := range []string{"/debug/pprof/", "/debug/vars", "/debug/pprof/cmdline"} {
		if code, _ := s.do(t, http.MethodGet, path, "", ""); code != 404 {
			t.Errorf("%s is served: %d", path, code)
		}
	}
	resp, err := http.Get(s.base + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Errorf("content security policy: %q", csp)
	}
}

func TestLargeAnswersAreCompressed(t *testing.T) {
	s := serve(t, ServerConfig{})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.base+"/partitions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	z, err := gzip.NewReader(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var rows []PartitionRow
	if err := json.NewDecoder(z).Decode(&rows); err != nil || len(rows) != 4 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
}

func TestASilentClientIsCutOff(t *testing.T) {
	s := serve(t, ServerConfig{})
	if s.http.ReadHeaderTimeout <= 0 || s.http.ReadTimeout <= 0 || s.http.WriteTimeout <= 0 || s.http.IdleTimeout <= 0 {
		t.Errorf("a time limit is missing: %+v", s.http)
	}
}

func TestAnAddressInUseIsTold(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = OpenServer(ServerConfig{Listen: ln.Addr().String()}, ServerDeps{Gatherer: prometheus.NewRegistry(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("got %v", err)
	}
}

func TestTLSPicksUpARenewedCertificate(t *testing.T) {
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	issue(t, cert, key, "first")
	s := serve(t, ServerConfig{Listen: "127.0.0.1:0", Loopback: true, CertFile: cert, KeyFile: key})
	name := func() string {
		conn, err := tls.Dial("tcp", s.Addr(), &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := name(); got != "first" {
		t.Fatalf("got %s", got)
	}
	if err := os.WriteFile(key, []byte("half written"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := name(); got != "first" {
		t.Errorf("while the files do not fit: got %s", got)
	}
	issue(t, cert, key, "second")
	if got := name(); got != "second" {
		t.Errorf("after renewal: got %s", got)
	}
}

func issue(t *testing.T, certFile, keyFile, name string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: keyDER}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
