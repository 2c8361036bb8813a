package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"mirrord/internal/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a cluster and a client to it.
type fake struct {
	*kfake.Cluster
	client *kgo.Client
	admin  *kadm.Client
}

func startFake(t *testing.T, id string) *fake {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID(id), kfake.DataDir(t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cl.Close()
		c.Close()
	})
	return &fake{c, cl, kadm.NewClient(cl)}
}

func (f *fake) addr() string { return f.ListenAddrs()[0] }

func (f *fake) create(t *testing.T, topic string, partitions int32) {
	t.Helper()
	if _, err := f.admin.CreateTopic(t.Context(), partitions, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
}

func (f *fake) produce(t *testing.T, topic string, n int) {
	t.Helper()
	for i := range n {
		f.client.Produce(t.Context(), &kgo.Record{Topic: topic, Value: fmt.Append(nil, i)}, nil)
	}
	if err := f.client.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// end is the sum of a topic's log ends; 0 while it does not exist.
func (f *fake) end(t *testing.T, topic string) (sum int64) {
	t.Helper()
	offsets, err := f.admin.ListEndOffsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	offsets.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			sum += o.Offset
		}
	})
	return sum
}

// eventually polls until ok, for at most limit.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(60 * time.Second)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-deadline:
			t.Fatalf("not in time: %s", what)
		case <-tick.C:
		}
	}
}

// instance is a daemon under test.
type instance struct {
	*Daemon
	file    string
	hangups chan struct{}
	log     *syncBuffer
	stop    func() error // idempotent
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func configFile(t *testing.T, destination, more string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("opens"), 0o600); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mirrord.yaml")
	writeConfig(t, file, destination, more)
	return file
}

func writeConfig(t *testing.T, file, destination, more string) {
	t.Helper()
	text := fmt.Sprintf(`destination: {bootstrap_servers: ["%s"]}
state_topic: {num_partitions: 3, replication_factor: 1}
metadata_refresh_interval: 200ms
group_sync_interval: 1s
http: {listen: "127.0.0.1:0", token_file: token}
data_dir: data
%s`, destination, more)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mirrorOf(source string, topics string) string {
	return fmt.Sprintf("mirrors: [{name: east, source: {bootstrap_servers: [\"%s\"]}, topics_include: [%s]}]\n", source, topics)
}

func launch(t *testing.T, file string) *instance {
	t.Helper()
	cfg, err := config.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	in := &instance{file: file, hangups: make(chan struct{}, 1), log: new(syncBuffer)}
	level := new(slog.LevelVar)
	in.Daemon, err = New(cfg, Options{Log: slog.New(slog.NewTextHandler(in.log, &slog.HandlerOptions{Level: level})), Level: level, Version: "test", Hangups: in.hangups})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- in.Run(ctx) }()
	in.stop = sync.OnceValue(func() error {
		cancel()
		began := time.Now()
		err := <-done
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("stopping took %v", took)
		}
		return err
	})
	t.Cleanup(func() {
		if err := in.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", in.log)
		}
	})
	return in
}

func (in *instance) get(t *testing.T, path string) (int, string) {
	t.Helper()
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + in.server.Addr() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// metric is the value of the first series whose line begins so; empty: there is none.
func (in *instance) metric(t *testing.T, prefix string) string {
	t.Helper()
	_, body := in.get(t, "/metrics")
	for line := range strings.Lines(body) {
		if strings.HasPrefix(line, prefix) {
			return strings.TrimSpace(line[strings.LastIndexByte(strings.TrimSpace(line), ' ')+1:])
		}
	}
	return ""
}

func TestTwoInstancesInOneProcessTwice(t *testing.T) {
	src, dst := startFake(t, "src"), startFake(t, "dst")
	src.create(t, "orders", 4)
	file := configFile(t, dst.addr(), mirrorOf(src.addr(), "orders"))
	for round := range 2 {
		one, two := launch(t, file), launch(t, file)
		src.produce(t, "orders", 100)
		want := int64(100 * (round + 1))
		eventually(t, "the destination has all records", func() bool { return dst.end(t, "orders") == want })
		for _, in := range []*instance{one, two} {
			eventually(t, "an instance is ready", func() bool { code, _ := in.get(t, "/readyz"); return code == 200 })
		}
		if err := errors.Join(one.stop(), two.stop()); err != nil {
			t.Fatal(err)
		}
	}
	if got := dst.end(t, "orders"); got != 200 {
		t.Errorf("destination holds %d records, want 200", got)
	}
}

func TestMetricsOfTheDaemon(t *testing.T) {
	src, dst := startFake(t, "src"), startFake(t, "dst")
	src.create(t, "orders", 1)
	in := launch(t, configFile(t, dst.addr(), mirrorOf(src.addr(), "orders")))
	for series, want := range map[string]string{
		`mirrord_source_up{mirror="east"}`: "1", "mirrord_destination_up": "1", "mirrord_config_reload_success": "1",
		`mirrord_build_info{version="test"}`: "1",
	} {
		eventually(t, series+" is "+want, func() bool { return in.metric(t, series) == want })
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", `mirrord_kafka_client_connects_total{cluster="destination"`, `mirrord_kafka_client_connects_total{cluster="source of east"`} {
		if in.metric(t, name) == "" {
			t.Errorf("no metric %s", name)
		}
	}
	src.Close()
	eventually(t, "mirrord_source_up tells that the source is gone", func() bool { return in.metric(t, `mirrord_source_up{mirror="east"}`) == "0" })
	if code, body := in.get(t, "/readyz"); code != 200 || !strings.Contains(body, `"mirror":"east","up":false`) {
		t.Errorf("a source that is down must be told and be no reason: %d %s", code, body)
	}
}

func deadAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// silentAddress accepts connections and never says anything.
func silentAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var held []net.Conn
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			held = append(held, conn)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range held {
			c.Close()
		}
	})
	return ln.Addr().String()
}

func TestAnUnreachableDestinationEndsNothing(t *testing.T) {
	for name, addr := range map[string]string{"dead": deadAddress(t), "silent": silentAddress(t)} {
		t.Run(name, func(t *testing.T) {
			messages := fakeManager(t)
			in := launch(t, configFile(t, addr, mirrorOf(addr, "orders")))
			first := expectBoth(t, messages, "READY=1", "STATUS=")
			if status := first["STATUS="]; !strings.Contains(status, "waiting for the destination: "+addr) {
				t.Errorf("status: %s", status)
			}
			for range 3 {
				began := time.Now()
				code, body := in.get(t, "/readyz")
				if took := time.Since(began); code != 503 || took > 2*time.Second || !strings.Contains(body, addr) {
					t.Errorf("/readyz: %d %s after %v", code, body, took)
				}
			}
			if code, _ := in.get(t, "/healthz"); code != 200 {
				t.Errorf("/healthz: %d", code)
			}
			if got := in.metric(t, "mirrord_destination_up"); got != "0" {
				t.Errorf("mirrord_destination_up is %q", got)
			}
			if err := in.stop(); err != nil {
				t.Errorf("Run: %v", err)
			}
			expect(t, messages, "STOPPING=1")
		})
	}
}

func TestReload(t *testing.T) {
	src, dst := startFake(t, "src"), startFake(t, "dst")
	src.create(t, "orders", 1)
	src.create(t, "payments", 1)
	src.produce(t, "orders", 10)
	src.produce(t, "payments", 10)
	messages := fakeManager(t)
	in := launch(t, configFile(t, dst.addr(), mirrorOf(src.addr(), "orders")))
	expect(t, messages, "READY=1")
	eventually(t, "orders is mirrored", func() bool { return dst.end(t, "orders") == 10 })

	writeConfig(t, in.file, dst.addr(), "group_idd: x\n"+mirrorOf(src.addr(), `"("`))
	in.hangups <- struct{}{}
	expect(t, messages, "RELOADING=1")
	expect(t, messages, "READY=1")
	if got := in.metric(t, "mirrord_config_reload_success"); got != "0" {
		t.Errorf("mirrord_config_reload_success is %q after a bad file", got)
	}
	for _, want := range []string{`key=group_idd line=7`, `key=mirrors[0].topics_include line=8`, "did you mean group_id?"} {
		if !strings.Contains(in.log.String(), want) {
			t.Errorf("the log does not say %s", want)
		}
	}
	src.produce(t, "orders", 10)
	eventually(t, "orders is mirrored after a bad file", func() bool { return dst.end(t, "orders") == 20 })

	writeConfig(t, in.file, dst.addr(), "log: {level: debug}\nfetch: {threads: 2}\nthrottle: 100MiB\n"+mirrorOf(src.addr(), "orders, payments"))
	in.hangups <- struct{}{}
	eventually(t, "payments is mirrored after a good file", func() bool { return dst.end(t, "payments") == 10 })
	if got := in.metric(t, "mirrord_config_reload_success"); got != "1" {
		t.Errorf("mirrord_config_reload_success is %q after a good file", got)
	}
	if !strings.Contains(in.log.String(), `msg="changed settings wait for a restart" keys=fetch.threads`) {
		t.Error("the log does not say that fetch.threads waits for a restart, and nothing else")
	}
	if in.opts.Level.Level() != slog.LevelDebug {
		t.Error("the log level was not changed")
	}
}

func TestTheWatchdogIsFedByAWorkingInstance(t *testing.T) {
	dst := startFake(t, "dst")
	messages := fakeManager(t)
	t.Setenv("WATCHDOG_USEC", "2000000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	in := launch(t, configFile(t, dst.addr(), ""))
	eventually(t, "the instance is ready", func() bool { code, _ := in.get(t, "/readyz"); return code == 200 })
	for range 3 {
		expect(t, messages, "WATCHDOG=1")
	}
}

func TestADestinationOfAnotherGroupIsRefused(t *testing.T) {
	dst := startFake(t, "dst")
	first := launch(t, configFile(t, dst.addr(), ""))
	eventually(t, "the first instance is ready", func() bool { code, _ := first.get(t, "/readyz"); return code == 200 })
	cfg, err := config.Load(configFile(t, dst.addr(), "group_id: other\nsession_timeout: 1s\n"))
	if err != nil {
		t.Fatal(err)
	}
	d, err := New(cfg, Options{Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = d.Run(ctx)
	if _, ok := errors.AsType[*config.Mistakes](err); !ok || !strings.Contains(err.Error(), "other") || !strings.Contains(err.Error(), "mirrord") {
		t.Errorf("got %v, want a mistake naming both groups", err)
	}
}

func TestAnHTTPAddressInUseIsTold(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cfg := config.Default()
	cfg.Destination.BootstrapServers, cfg.HTTP.Listen = []string{"127.0.0.1:1"}, ln.Addr().String()
	if _, err := New(&cfg, Options{Log: quiet}); err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("got %v", err)
	}
}
