package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Commands are all records of __mirror_commands.
func Commands(t testing.TB, c *Cluster) (all []mirror.Command) {
	t.Helper()
	logs, err := c.Logs(context.Background(), statestore.CommandsTopic)
	must(t, err)
	for p, log := range logs {
		for r := newReader(c, statestore.CommandsTopic, p, log); ; {
			rec, err := r.next()
			must(t, err)
			if rec == nil {
				break
			}
			cmd, err := statestore.DecodeCommand(rec.Key, rec.Value)
			must(t, err)
			all = append(all, cmd)
		}
	}
	return all
}

// answeredOnce waits until every command has its one outcome.
func answeredOnce(t *testing.T, c *Cluster, limit time.Duration) {
	t.Helper()
	commands := Commands(t, c)
	Eventually(t, limit, func() error {
		answered := map[[16]byte]int{}
		for _, r := range StateLog(t, c) {
			if o, ok := r.Record.(statestore.CommandOutcome); ok {
				answered[o.ID]++
			}
		}
		for _, cmd := range commands {
			if answered[cmd.ID] != 1 {
				return fmt.Errorf("%s of %v was answered %d times", cmd.Verb, cmd.Topics, answered[cmd.ID])
			}
		}
		return nil
	})
	SoundState(t, c)
}

// The owner is killed between a command and its outcome, again and again: each command is executed once, in order.
func TestCommandsAcrossCrashes(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 6)
	p.S.Topic(t, "u", 1)
	s := p.Mirror("t", "u")
	s.Extra = []string{"instance_id: one"} // the next process takes over at once
	m := NewDaemon(t, s)
	m.Start()
	m.Await("MIRRORING", 20*time.Second, "t", "u")
	for round := range 8 {
		verb := []string{"pause", "resume"}[round%2]
		m.Do(verb, "--mirror", "east", "--topics", "t", "--no-wait")
		time.Sleep(rand.N(60 * time.Millisecond))
		m.Kill()
		m.Do(verb, "--mirror", "east", "--topics", "u", "--no-wait") // waits for whoever comes next
		m.Launch()
	}
	answeredOnce(t, p.D, 30*time.Second)
	m.Await("MIRRORING", 20*time.Second, "t", "u")
	want(t, "commands", len(Commands(t, p.D)), 16)
}

// The owner of a mirror is frozen with a command before it; the other instance executes it, and the frozen one, once it
// goes on, does not do it again.
func TestCommandsAcrossTakeover(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 6)
	s := p.Mirror("t")
	s.Extra = []string{"session_timeout: 3s"}
	pair := []*Daemon{NewDaemon(t, s), NewDaemon(t, s)}
	for _, m := range pair {
		m.Start()
	}
	pair[0].Await("MIRRORING", 20*time.Second, "t")
	for round, verb := range []string{"pause", "resume"} {
		owner := ownerOfMirror(t, p.D, pair)
		other := pair[1-owner]
		pair[owner].Freeze()
		r := other.Do(verb, "--mirror", "east", "--topics", "t", "--timeout", "20s")
		if r.Took > 3*time.Second+5*time.Second+time.Second {
			t.Errorf("round %d: %s took %v", round, verb, r.Took)
		}
		pair[owner].Thaw()
		answeredOnce(t, p.D, 10*time.Second)
		joined(t, pair...)
	}
	pair[0].Await("MIRRORING", 20*time.Second, "t")
}

// ownerOfMirror is the instance that owns the shard of mirror east now, by the claims.
func ownerOfMirror(t *testing.T, c *Cluster, instances []*Daemon) int {
	t.Helper()
	http := ""
	for _, r := range StateLog(t, c) {
		if claim, ok := r.Record.(statestore.ShardClaim); ok && claim.ShardIndex == mirror.ShardOfMirror("east", 5) {
			http = claim.HTTP
		}
	}
	for i, m := range instances {
		if m.http == http {
			return i
		}
	}
	t.Fatalf("no instance listens on %q", http)
	return 0
}

// joined waits until the instances share all shards.
func joined(t *testing.T, instances ...*Daemon) {
	t.Helper()
	Eventually(t, 30*time.Second, func() error {
		sum := 0.0
		for i, m := range instances {
			owned := m.Metric("mirrord_shards_owned")
			if owned == 0 {
				return fmt.Errorf("instance %d owns nothing", i)
			}
			sum += owned
		}
		if sum != 5 {
			return fmt.Errorf("%v shards are owned", sum)
		}
		return nil
	})
}

// Every refusal says why, per topic, and changes nothing; exit codes tell the cases apart.
func TestCommandsRefused(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	for _, topic := range []string{"t", "u", "v"} {
		p.S.Topic(t, topic, 1)
	}
	s := p.Mirror()
	s.Mirror = ""
	m := NewDaemon(t, s)
	file := propertiesFile(t, "bootstrap.servers="+p.S.Bootstrap())
	refused := func(code int, text string, args ...string) {
		t.Helper()
		r := m.Run(args...)
		if matched, _ := regexp.MatchString(text, r.Err); r.Code != code || !matched {
			t.Errorf("mirrord %s: exit code %d, want %d\n%s%s, want %q", strings.Join(args, " "), r.Code, code, r.Out, r.Err, text)
		}
	}
	refused(3, "no instance", "create", "--mirror", "east", "--mirror-config", file, "--timeout", "1s")
	m.Start()
	want(t, "output", m.Do("create", "--mirror", "east", "--mirror-config", file).Out, "Created mirror east\n")
	refused(1, "exists already", "create", "--mirror", "east", "--mirror-config", file)
	refused(2, "not allowed", "create", "--mirror", "a.paused", "--mirror-config", file)
	m.Do("create", "--mirror", "other", "--mirror-config", file)
	m.Do("start", "--mirror", "east", "--topics", "t,u")
	refused(1, "(?m)^topic t is in mirror east.*$", "start", "--mirror", "other", "--topics", "t")
	refused(1, "(?s)nosuch.*", "start", "--mirror", "east", "--topics", "nosuch")
	refused(1, "there is no mirror", "start", "--mirror", "west", "--topics", "t")
	refused(1, "v is not in mirror", "pause", "--mirror", "east", "--topics", "v,u") // u is paused all the same
	m.Await("PAUSED", 10*time.Second, "u")
	refused(1, "paused: resume it", "start", "--mirror", "east", "--topics", "u")
	refused(1, "without --drain", "stop", "--mirror", "east", "--topics", "u", "--drain")
	refused(1, "nothing of topic t has FAILED", "recover", "--mirror", "east", "--topics", "t")
	refused(1, "(?s)t is started.*u is started", "delete", "--mirror", "east")
	want(t, "code of a stop that is told only", m.Do("stop", "--mirror", "east", "--topics", ".*", "--dry-run").Code, 0)
	m.Await("MIRRORING", time.Second, "t")
	m.Do("stop", "--mirror", "east", "--topics", "t")
	m.Do("stop", "--mirror", "east", "--topics", "t") // done already
	for _, verb := range []string{"pause", "resume"} {
		refused(1, "STOPPED", verb, "--mirror", "east", "--topics", "t")
	}
	m.Do("start", "--mirror", "other", "--topics", "t") // it is free now
	refused(1, "t is in mirror other", "start", "--mirror", "east", "--topics", "t")
	m.Do("stop", "--mirror", "east", "--topics", "u")
	m.Do("delete", "--mirror", "east")
	refused(2, "", "stop", "--mirror", "east")
	refused(2, "", "stop", "--mirror", "east", "--topics", "(")
	m.cli = "127.0.0.1:1"
	refused(4, "cannot reach", "list")
}

func propertiesFile(t *testing.T, lines ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "mirror.properties")
	must(t, os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	return file
}

// A secret in clear is refused before it lies in a topic, and by the daemon too should another client have put it there.
func TestLiteralSecretsRefused(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-in-clear"
	p := SharedPair(t)
	s := p.Mirror()
	s.Mirror = ""
	m := NewDaemon(t, s)
	m.Start()
	jaas := "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"u\" password=\"" + secret + "\";"
	for name, lines := range map[string][]string{
		"jaas":          {"security.protocol=SASL_SSL", "sasl.mechanism=SCRAM-SHA-512", "sasl.jaas.config=" + jaas},
		"keystore key":  {"security.protocol=SSL", "ssl.keystore.key=" + secret},
		"key password":  {"security.protocol=SSL", "ssl.key.password=" + secret},
		"client secret": {"security.protocol=SASL_SSL", "sasl.mechanism=OAUTHBEARER", "sasl.oauthbearer.client.credentials.client.secret=" + secret},
	} {
		r := m.Run("create", "--mirror", "east", "--mirror-config", propertiesFile(t, append(lines, "bootstrap.servers="+p.S.Bootstrap())...))
		if r.Code != 1 && r.Code != 2 || strings.Contains(r.Err+r.Out, secret) {
			t.Errorf("%s: exit code %d, %s%s", name, r.Code, r.Out, r.Err)
		}
	}
	cmd := mirror.Command{
		ID: [16]byte{1}, AtMillis: time.Now().UnixMilli(), Verb: mirror.VerbCreate, Mirror: "east",
		Settings: map[string]string{"bootstrap.servers": p.S.Bootstrap(), "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas},
	}
	if code := m.Post("/api/v1/commands", map[string]any{"verb": "create", "mirror": "east", "settings": cmd.Settings}, nil); code == 200 {
		t.Error("the HTTP API took a secret in clear")
	}
	for _, c := range Commands(t, p.D) {
		if strings.Contains(fmt.Sprint(c), secret) {
			t.Errorf("the commands topic holds the secret: %s of %s", c.Verb, c.Mirror)
		}
	}
	p.D.Send(t, nil, &kgo.Record{Topic: statestore.CommandsTopic, Partition: mirror.ShardOfMirror("east", 5), Key: cmd.ID[:], Value: statestore.EncodeCommand(cmd)})
	answeredOnce(t, p.D, 10*time.Second)
	for _, r := range StateLog(t, p.D) {
		if strings.Contains(string(r.Value), secret) {
			t.Errorf("the state topic holds the secret: %T", r.Record)
		}
		if o, ok := r.Record.(statestore.CommandOutcome); ok && !o.Refused {
			t.Error("the daemon took a secret in clear")
		}
	}
	if strings.Contains(m.Log(), secret) {
		t.Error("the log holds the secret")
	}
}

// A destination belongs to one group_id: a daemon with another one refuses to run and names the group.
func TestOneGroupPerDestination(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	s := p.Mirror("t")
	s.Extra = []string{"session_timeout: 2s"}
	m := NewDaemon(t, s)
	m.Start()
	s.Group = "stranger"
	other := NewDaemon(t, s)
	checked := other.check()
	want(t, "exit code of check", checked.Code, 1)
	says(t, "check", checked.Out, `belongs to group "mirrord"`, "set group_id: mirrord")
	other.Launch()
	if !other.p.wait(20*time.Second) || other.p.code() == 0 {
		t.Error("the second group runs")
	}
	if !strings.Contains(other.Log(), `belongs to group "mirrord"`) {
		t.Errorf("its log does not name the group:\n%s", other.Log())
	}
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, 10*time.Second, "t")
	SoundState(t, p.D)
	m.Stop()
	checked = other.check()
	want(t, "exit code of check when nobody is left", checked.Code, 0)
	says(t, "check", checked.Out, `belonged to group "mirrord"`)
}

// A mirror with one and the same cluster on both sides is refused with the cluster's id; nothing is created, and the
// other mirror goes on. One that came to it by an edit of the file stands still, no partition of it FAILED and none to be
// drained, and goes on by itself when the file is right again.
func TestSameClusterRefused(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	p.D.Topic(t, "own", 1)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	m.Do("create", "--mirror", "mad", "--mirror-config", propertiesFile(t, "bootstrap.servers="+p.D.Bootstrap(), "topics.include=.*"))
	Eventually(t, 10*time.Second, func() error {
		if !strings.Contains(m.Log(), p.D.ID) || !strings.Contains(m.Log(), "mirror=mad") {
			return fmt.Errorf("the log does not name cluster %s", p.D.ID)
		}
		return nil
	})
	if r := m.Run("start", "--mirror", "mad", "--topics", "own"); r.Code == 0 {
		t.Errorf("start of own: %s%s", r.Out, r.Err)
	}
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	AwaitLevel(t, p.S, p.D, 10*time.Second, "t")
	for _, row := range m.Describe() {
		if row.Mirror == "mad" && row.State != "FAILED" && row.State != "UNKNOWN" {
			t.Errorf("mirror mad has %+v", row)
		}
	}

	s := p.Mirror("t")
	s.Source = p.D.Bootstrap()
	m.Write(s)
	m.Reload()
	row := awaitRow(t, m, "t", 0, soon, func(r Partition) bool { return strings.Contains(r.ErrorMessage, "one and the same cluster "+p.D.ID) })
	want(t, "state", row.State, "MIRRORING")
	p.S.Send(t, nil, Numbered("t", 0, 10, 10)...)
	if r := m.Run("stop", "--mirror", "east", "--topics", "t", "--drain", "--timeout", "3s"); r.Code != 1 {
		t.Errorf("drained from itself: %+v", r)
	}
	if r := m.Run("verify", "--mirror", "east"); r.Code != 1 || !strings.Contains(r.Err, p.D.ID) {
		t.Errorf("compared with itself: %+v", r)
	}
	m.Write(p.Mirror("t"))
	m.Reload()
	AwaitLevel(t, p.S, p.D, soon, "t")
	Identical(t, p.S, p.D, "t")
	awaitRow(t, m, "t", 0, soon, func(r Partition) bool { return r.State == "MIRRORING" && r.ErrorMessage == "" })
}

// A topic that begins above 0 begins there at the destination, whatever is configured on it, and log starts are followed.
func TestStartAboveZero(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "plain", 2)
	p.S.Topic(t, "compacted", 1, "cleanup.policy", "compact")
	p.S.Topic(t, "far", 1)
	var many []*kgo.Record
	for i := range 3_000_000 {
		many = append(many, &kgo.Record{Topic: "far", Value: []byte{byte(i)}})
	}
	cl := p.S.Producer(t, kgo.MaxBufferedRecords(1<<20), kgo.ProducerLinger(5*time.Millisecond), kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	defer cl.Close()
	must(t, cl.ProduceSync(context.Background(), many...).FirstErr())
	p.S.Send(t, nil, append(Numbered("plain", 0, 0, 500), Numbered("compacted", 0, 0, 500)...)...)
	p.S.trim(t, "plain", 0, 300)
	p.S.trim(t, "far", 0, 2_999_000)
	compactedStart := p.S.trimCompacted(t, "compacted", 200)
	m := NewDaemon(t, p.Mirror("plain", "compacted", "far"))
	began := time.Now()
	m.Start()
	AwaitLevel(t, p.S, p.D, 60*time.Second, "plain", "far")
	t.Logf("topic that begins at 2,999,000: level after %v", time.Since(began))
	Identical(t, p.S, p.D, "plain", "far")
	Eventually(t, 20*time.Second, func() error {
		logs, err := p.D.Logs(context.Background(), "compacted")
		if err == nil && (logs[0].Start != compactedStart || logs[0].End != 500) {
			err = fmt.Errorf("compacted is [%d, %d), source [%d, 500)", logs[0].Start, logs[0].End, compactedStart)
		}
		return err
	})
	want(t, "cleanup.policy at the destination", p.D.Setting(t, "compacted", "cleanup.policy"), "compact")
	p.S.trim(t, "plain", 0, 450)
	AwaitLevel(t, p.S, p.D, 10*time.Second, "plain")
	if logs, _ := p.D.Logs(context.Background(), "plain"); logs[0].Start != 450 {
		t.Errorf("the log start is %d, 450 at the source", logs[0].Start)
	}
}

func (c *Cluster) trim(t testing.TB, topic string, partition int32, to int64) {
	t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: partition, At: to})
	gone, err := c.adm.DeleteRecords(context.Background(), offsets)
	must(t, err)
	must(t, gone.Error())
}

// trimCompacted trims a compact topic, which a broker allows only while its policy is another one.
func (c *Cluster) trimCompacted(t testing.TB, topic string, to int64) int64 {
	t.Helper()
	c.Set(t, topic, "cleanup.policy", "delete")
	c.trim(t, topic, 0, to)
	c.Set(t, topic, "cleanup.policy", "compact")
	return to
}

// Records expire at the source while nobody mirrors: with on_lost_range continue that is told once and counted; with
// fail the partition waits for recover.
func TestOvertaken(t *testing.T) {
	t.Parallel()
	for _, rule := range []string{"continue", "fail"} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			p := SharedPair(t)
			p.S.Topic(t, "t", 2)
			s := p.Mirror("t")
			s.MirrorExtra = []string{"on_lost_range: " + rule}
			m := NewDaemon(t, s)
			m.Start()
			p.S.Send(t, nil, append(Numbered("t", 0, 0, 1000), Numbered("t", 1, 0, 10)...)...)
			AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
			m.Stop()
			p.S.Send(t, nil, Numbered("t", 0, 1000, 1000)...)
			p.S.trim(t, "t", 0, 1500)
			p.S.Send(t, nil, append(Numbered("t", 0, 2000, 100), Numbered("t", 1, 10, 10)...)...)
			m.Start()
			if rule == "fail" {
				row := awaitRow(t, m, "t", 0, 20*time.Second, func(r Partition) bool { return r.State == "FAILED" })
				want(t, "attempt", row.RetryAttempt, -1)
				if !strings.Contains(row.ErrorMessage, "1000") || !strings.Contains(row.ErrorMessage, "1499") {
					t.Errorf("message: %s", row.ErrorMessage)
				}
				awaitRow(t, m, "t", 1, 10*time.Second, func(r Partition) bool { return r.State == "MIRRORING" && r.Lag == 0 })
				m.Do("recover", "--mirror", "east", "--topics", "t")
			}
			AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
			Identical(t, p.S, p.D, "t")
			want(t, "lost records", m.Metric("mirrord_lost_records_total", `topic="t"`), 500)
			told := regexp.MustCompile(`(?m)^.*level=ERROR.*(1000.*1499|1499.*1000).*$`).FindAllString(m.Log(), -1)
			if n := len(told); n != 1 && rule == "continue" {
				t.Errorf("the loss is told %d times", n)
			}
		})
	}
}

// awaitRow waits for a partition to be as wanted.
func awaitRow(t *testing.T, m *Daemon, topic string, partition int32, limit time.Duration, good func(Partition) bool) (row Partition) {
	t.Helper()
	Eventually(t, limit, func() error {
		for _, r := range m.Describe() {
			if r.Topic == topic && r.Partition == partition {
				if row = r; good(r) {
					return nil
				}
				return fmt.Errorf("%+v", r)
			}
		}
		return fmt.Errorf("describe does not list %s-%d", topic, partition)
	})
	return row
}
