package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Token opens the HTTP API of daemons started here.
const Token = "e2e-token"

// Daemon is one mirrord instance with a file of its own.
type Daemon struct {
	t    testing.TB
	dir  string
	http string
	cli  string // destination address for commands, direct
	env  []string
	p    *process
}

// Settings make a configuration file. Extra is YAML appended at the top level, Mirror YAML below the declared mirror.
type Settings struct {
	Source, Destination string
	Direct              string // destination address for commands; empty: Destination
	Group, Mirror       string
	Topics              []string
	Extra, MirrorExtra  []string
	Retry               string   // YAML below retry; empty: quick retries without end of patience
	Security            string   // YAML below destination.security; empty: none
	SourceSecurity      string   // YAML below the mirror's source.security; empty: none
	Env                 []string // of the process
}

// built builds mirrord once; a path in MIRRORD_BINARY is used instead.
var built = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("MIRRORD_BINARY"); path != "" {
		return path, nil
	}
	path := filepath.Join(os.TempDir(), fmt.Sprint("mirrord-e2e-", os.Getpid()))
	out, err := exec.Command("go", "build", "-o", path, "mirrord/cmd/mirrord").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build mirrord: %w\n%s", err, out)
	}
	return path, nil
})

// NewDaemon writes the file of an instance and ends the instance with the test.
func NewDaemon(t testing.TB, s Settings) *Daemon {
	t.Helper()
	d := &Daemon{t: t, dir: t.TempDir(), http: freeAddr(), cli: cmpOr(s.Direct, s.Destination)}
	must(t, os.WriteFile(filepath.Join(d.dir, "token"), []byte(Token+"\n"), 0o600))
	d.Write(s)
	t.Cleanup(func() {
		d.end()
		if t.Failed() {
			t.Logf("mirrord's log\n%s", tail(filepath.Join(d.dir, "log"), 6000))
			if keep := os.Getenv("MIRRORD_E2E_LOGS"); keep != "" { // a folder for whole logs of failed tests
				name := strings.NewReplacer("/", "_", "=", "_").Replace(t.Name()) + filepath.Base(filepath.Dir(d.dir)) + filepath.Base(d.dir)
				_ = os.WriteFile(filepath.Join(keep, name), []byte(d.Log()), 0o644)
			}
		}
	})
	return d
}

// Write puts settings into the file.
func (d *Daemon) Write(s Settings) {
	d.t.Helper()
	var b strings.Builder
	d.env = s.Env
	fmt.Fprintf(&b, "destination: {bootstrap_servers: %s, security: {%s}}\n", list(strings.Split(s.Destination, ",")), s.Security)
	fmt.Fprintf(&b, "group_id: %s\nhttp: {listen: %q, token_file: %q}\ndata_dir: %q\n", cmpOr(s.Group, "mirrord"), d.http, filepath.Join(d.dir, "token"), d.dir)
	b.WriteString("state_topic: {num_partitions: 5, replication_factor: 1}\nmetadata_refresh_interval: 1s\ngroup_sync_interval: 1s\n")
	fmt.Fprintf(&b, "retry: {%s}\n", cmpOr(s.Retry, "max_backoff: 2s"))
	for _, line := range s.Extra {
		b.WriteString(line + "\n")
	}
	if s.Mirror != "" {
		fmt.Fprintf(&b, "mirrors:\n  - name: %s\n    source: {bootstrap_servers: %s, security: {%s}}\n    topics_include: %s\n",
			s.Mirror, list(strings.Split(s.Source, ",")), s.SourceSecurity, list(s.Topics))
		for _, line := range s.MirrorExtra {
			b.WriteString("    " + line + "\n")
		}
	}
	must(d.t, os.WriteFile(d.ConfigFile(), []byte(b.String()), 0o600))
}

func list(items []string) string {
	b, _ := json.Marshal(items) // a JSON list is a YAML list
	return string(b)
}

// ConfigFile is the instance's file.
func (d *Daemon) ConfigFile() string { return filepath.Join(d.dir, "mirrord.yaml") }

// Launch starts the process.
func (d *Daemon) Launch() {
	d.t.Helper()
	bin, err := built()
	must(d.t, err)
	cmd := exec.Command(bin, "run", "--config", d.ConfigFile())
	cmd.Dir, cmd.Env = d.dir, append(os.Environ(), d.env...)
	d.p, err = startProcess(cmd, filepath.Join(d.dir, "log"))
	must(d.t, err)
}

// Start launches the process and waits for /readyz.
func (d *Daemon) Start() {
	d.t.Helper()
	d.Launch()
	Eventually(d.t, 40*time.Second, func() error {
		if !d.p.alive() {
			d.t.Fatalf("mirrord ended with code %d", d.p.code())
		}
		return d.get("/readyz", io.Discard)
	})
}

// Kill ends the process with SIGKILL.
func (d *Daemon) Kill() {
	if d.p != nil {
		d.p.kill()
	}
}

// end ends the process however it can be ended. In order is quicker for the next test: the group then has no member left.
func (d *Daemon) end() {
	if d.p == nil {
		return
	}
	d.Thaw()
	d.p.signal(syscall.SIGTERM)
	d.p.wait(8 * time.Second)
	d.p.kill()
}

// Stop ends the process in order and demands exit code 0 within 10 s.
func (d *Daemon) Stop() {
	d.t.Helper()
	d.p.signal(syscall.SIGTERM)
	if !d.p.wait(10*time.Second) || d.p.code() != 0 {
		d.t.Fatal("mirrord did not end in order")
	}
}

// Freeze and Thaw stop the process where it stands and let it go on.
func (d *Daemon) Freeze() { d.p.signal(syscall.SIGSTOP) }

// Thaw undoes Freeze.
func (d *Daemon) Thaw() { d.p.signal(syscall.SIGCONT) }

// Reload makes the process read its file again.
func (d *Daemon) Reload() { d.p.signal(syscall.SIGHUP) }

// Log is all that the process has printed.
func (d *Daemon) Log() string {
	b, _ := os.ReadFile(filepath.Join(d.dir, "log"))
	return string(b)
}

func (d *Daemon) get(path string, w io.Writer) error {
	client := http.Client{Timeout: 3 * time.Second}
	resp, err := client.Get("http://" + d.http + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %s", path, resp.StatusCode, body)
	}
	_, _ = w.Write(body)
	return err
}

// Post sends a request to the HTTP API with the token, and gives the answer's code.
func (d *Daemon) Post(path string, body, answer any) int {
	d.t.Helper()
	return d.post(path, Token, body, answer)
}

func (d *Daemon) post(path, token string, body, answer any) int {
	d.t.Helper()
	b, err := json.Marshal(body)
	must(d.t, err)
	req, err := http.NewRequest(http.MethodPost, "http://"+d.http+path, bytes.NewReader(b))
	must(d.t, err)
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Timeout: 10 * time.Second}).Do(req)
	must(d.t, err)
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	must(d.t, err)
	if answer != nil && resp.StatusCode == http.StatusOK {
		must(d.t, json.Unmarshal(got, answer))
	}
	return resp.StatusCode
}

// Metric is the sum of the samples whose line begins with name and holds all the label texts.
func (d *Daemon) Metric(name string, labels ...string) (sum float64) {
	d.t.Helper()
	var body bytes.Buffer
	must(d.t, d.get("/metrics", &body))
	for line := range strings.Lines(body.String()) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		all := true
		for _, l := range labels {
			all = all && strings.Contains(rest, l)
		}
		if fields := strings.Fields(line); all {
			v, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			must(d.t, err)
			sum += v
		}
	}
	return sum
}

// Result is what a command printed and how it ended.
type Result struct {
	Out, Err string
	Code     int
	Took     time.Duration
	Peak     int64 // resident memory, bytes
}

// Run runs a command against the destination.
func (d *Daemon) Run(args ...string) Result {
	d.t.Helper()
	return d.run(append(args, "--bootstrap-server", d.cli)...)
}

func (d *Daemon) run(args ...string) Result {
	d.t.Helper()
	bin, err := built()
	must(d.t, err)
	var out, errOut bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = d.dir, &out, &errOut
	began := time.Now()
	err = cmd.Start()
	must(d.t, err)
	peak := watchMemory(cmd.Process.Pid)
	err = cmd.Wait()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		d.t.Fatal(err)
	}
	return Result{out.String(), errOut.String(), cmd.ProcessState.ExitCode(), time.Since(began), peak()}
}

// Do runs a command and demands exit code 0.
func (d *Daemon) Do(args ...string) Result {
	d.t.Helper()
	r := d.Run(args...)
	if r.Code != 0 {
		d.t.Fatalf("mirrord %s: exit code %d\n%s%s", strings.Join(args, " "), r.Code, r.Out, r.Err)
	}
	return r
}

// Partition is one object of describe --json.
type Partition struct {
	Mirror, Topic                             string
	Partition                                 int32
	SourceOffset, DestinationOffset, Lag      int64
	LagSeconds                                float64
	State, PreviousState, ErrorMessage, Owner string
	RetryAttempt                              int
	LastMirrorEpoch                           int32
	LastMirrorOffset                          int64
}

// Describe lists all partitions.
func (d *Daemon) Describe() (all []Partition) {
	d.t.Helper()
	must(d.t, json.Unmarshal([]byte(d.Do("describe", "--json").Out), &all))
	return all
}

// Await waits until all partitions of the topics are in a state; at least one each.
func (d *Daemon) Await(state string, limit time.Duration, topics ...string) {
	d.t.Helper()
	Eventually(d.t, limit, func() error {
		seen := map[string]bool{}
		for _, p := range d.Describe() {
			seen[p.Topic] = true
			for _, topic := range topics {
				if p.Topic == topic && p.State != state {
					return fmt.Errorf("%s-%d is %s (%s), want %s", p.Topic, p.Partition, p.State, p.ErrorMessage, state)
				}
			}
		}
		for _, topic := range topics {
			if !seen[topic] {
				return fmt.Errorf("describe does not list %s", topic)
			}
		}
		return nil
	})
}

// Eventually repeats f until it gives no error; after the limit the test fails with the last one.
func Eventually(t testing.TB, limit time.Duration, f func() error) {
	t.Helper()
	must(t, persist(limit, f))
}

// persist is Eventually for goroutines that are not the test's own.
func persist(limit time.Duration, f func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", limit, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
