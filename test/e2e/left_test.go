package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// wantTold demands that an operator who looks finds all the words in one line of what describe says about mirrors.
func (d *Daemon) wantTold(words ...string) error {
	d.t.Helper()
	return holds(d.Do("describe").Err, words)
}

// wantEvent demands an event that holds all the words.
func (d *Daemon) wantEvent(words ...string) error {
	d.t.Helper()
	var body bytes.Buffer
	if err := d.get("/api/v1/mirrors/east/events?limit=1000", &body); err != nil {
		return err
	}
	return holds(strings.ReplaceAll(body.String(), "},", "},\n"), words)
}

// What is left alone is shown with the reason, for as long as that holds: to whoever asks, not to who reads the log alone.
func TestWhatIsLeftAloneIsShown(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 1)
	m := NewDaemon(t, p.Mirror("t", "absent"))
	m.Start()
	for _, words := range [][]string{
		{"ACLs are not mirrored", "the source has no authorizer"},
		{"not guarded", "the destination has no authorizer"},
		{"absent", "matches no topic of the source"},
	} {
		Eventually(t, soon, func() error { return m.wantTold(words...) })
		var mirrors bytes.Buffer
		must(t, m.get("/api/v1/mirrors", &mirrors))
		must(t, holds(mirrors.String(), words))
	}
	must(t, m.wantTold("mirror east", "transactions committed", "holes filled by markers"))
	p.S.Topic(t, "absent", 1)
	Eventually(t, soon, func() error {
		if m.wantTold("absent", "matches no topic") == nil {
			return errors.New("a pattern that matches is still said to match nothing")
		}
		return nil
	})
}

// An access rule that the destination cannot have is told by itself; the others come.
func rightsOneRefused(t *testing.T, p Pair, m *Daemon) {
	filled(t, p, "odd", 1)
	const twoPhaseCommit = 15 // an operation that this release of mirrord has no word for
	creation := kmsg.NewCreateACLsRequestCreation()
	creation.ResourceType, creation.ResourceName, creation.ResourcePatternType = kmsg.ACLResourceTypeTransactionalId, "odd", kmsg.ACLResourcePatternTypeLiteral
	creation.Principal, creation.Host, creation.PermissionType = "User:odd", "*", kmsg.ACLPermissionTypeAllow
	creation.Operation = twoPhaseCommit
	req := kmsg.NewPtrCreateACLsRequest()
	req.Creations = append(req.Creations, creation)
	resp, err := req.RequestWith(context.Background(), p.S.Client())
	must(t, err)
	if code := resp.Results[0].ErrorCode; code != 0 {
		t.Fatalf("the source refuses the rule: error %d", code)
	}
	before := m.Metric("mirrord_refresh_errors_total", `step="acls"`)
	p.S.Grant(t, "ALLOW READ User:odd TOPIC LITERAL odd")
	wantRights(t, p, "ALLOW READ User:odd TOPIC LITERAL odd")
	told := []string{"acls", "User:odd", "exact binding"}
	Eventually(t, soon, func() error { return errors.Join(m.wantTold(told...), m.wantEvent(told...)) })
	if n := m.Metric("mirrord_refresh_errors_total", `step="acls"`); n <= before {
		t.Errorf("%v failures counted, %v before", n, before)
	}
}

// quota sets a quota of a user and a client, or removes it.
func (c *Cluster) quota(t testing.TB, remove bool, entity kadm.ClientQuotaEntity) {
	t.Helper()
	altered, err := c.adm.AlterClientQuotas(context.Background(), []kadm.AlterClientQuotaEntry{{
		Entity: entity, Ops: []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: 12345678, Remove: remove}, {Key: "request_percentage", Value: 12.5, Remove: remove}},
	}})
	must(t, err)
	for _, a := range altered {
		must(t, a.Err)
	}
}

// leftToDo is what plan leaves to the operator: commands by what they are about.
func (d *Daemon) leftToDo() (run map[string]string) {
	d.t.Helper()
	r := d.withConfig("plan", "--mirror", "east", "--json")
	var plan struct {
		NotMirrored []struct{ What, Name, Run string }
	}
	if err := json.Unmarshal([]byte(r.Out), &plan); err != nil {
		d.t.Fatalf("plan: exit code %d, %v\n%s%s", r.Code, err, r.Out, r.Err)
	}
	run = map[string]string{}
	for _, n := range plan.NotMirrored {
		run[n.What+" "+n.Name] = n.Run
	}
	return run
}

// Client quotas and SCRAM users are not mirrored. plan names those that the destination lacks, with commands that Kafka's
// own tool takes as they stand, whatever the names are.
func TestPlanNamesWhatIsNotMirrored(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	odd, user := "CN=app, it's $HOME", "user"
	entities := []kadm.ClientQuotaEntity{{{Type: "user", Name: &odd}, {Type: "client-id"}}, {{Type: "user"}}, {{Type: "client-id", Name: &user}}}
	scram := []kadm.UpsertSCRAM{{User: user, Mechanism: kadm.ScramSha512, Iterations: 4096, Password: "x"}, {User: odd, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: "x"}}
	gone := []kadm.DeleteSCRAM{{User: user, Mechanism: kadm.ScramSha512}, {User: odd, Mechanism: kadm.ScramSha256}}
	t.Cleanup(func() {
		for _, c := range []*Cluster{p.S, p.D} {
			for _, e := range entities {
				c.quota(t, true, e)
			}
			_, err := c.adm.AlterUserSCRAMs(context.Background(), gone, nil)
			must(t, err)
		}
	})
	for _, e := range entities {
		p.S.quota(t, false, e)
	}
	altered, err := p.S.adm.AlterUserSCRAMs(context.Background(), nil, scram)
	must(t, err)
	must(t, altered.Error())
	p.S.Topic(t, "t", 1)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, soon, "t")
	left := m.leftToDo()
	for _, want := range []string{
		"client quota client-id=<default>,user=" + odd, "client quota user=<default>", "client quota client-id=" + user, "SCRAM user " + user, "SCRAM user " + odd,
	} {
		if left[want] == "" {
			t.Errorf("plan leaves out %q: %v", want, left)
		}
	}
	tool := kafkaConfigs(t)
	for what, run := range left {
		sh := exec.Command("sh", "-c", strings.ReplaceAll(run, "password=…", "password=x"))
		sh.Env = append(os.Environ(), "PATH="+filepath.Dir(tool)+":"+os.Getenv("PATH"))
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("%s: %s: %v\n%s", what, run, err, out)
		}
	}
	Eventually(t, soon, func() error {
		if left := m.leftToDo(); len(left) > 0 {
			return fmt.Errorf("after all commands plan still leaves %v", left)
		}
		return nil
	})
}

// kafkaConfigs is Kafka's tool of that name, which its release starts by a script.
func kafkaConfigs(t *testing.T) string {
	t.Helper()
	jars, err := Jars(defaultVersion)
	must(t, err)
	file := filepath.Join(t.TempDir(), "kafka-configs.sh")
	script := fmt.Sprintf("#!/bin/sh\nexec java -XX:TieredStopAtLevel=1 -Xmx128m -cp '%s/*' kafka.admin.ConfigCommand \"$@\"\n", jars)
	must(t, os.WriteFile(file, []byte(script), 0o755))
	return file
}

// pinned are the metrics that dashboards rely on (SPEC §11); those with a topic begin with the topic.
var pinned = map[string]bool{
	"mirrord_partition_lag_records": true, "mirrord_partition_lag_seconds": true, `mirrord_partition_offset{.*side="source"`: true,
	`mirrord_partition_offset{.*side="destination"`: true, `mirrord_partition_state{.*state="FAILED"`: true, `mirrord_partition_state{.*state="MIRRORING"`: true,
	"mirrord_fetched_bytes_total": true, "mirrord_produced_bytes_total": true, "mirrord_produced_records_total": true,
	`mirrord_filled_offsets_total{.*reason="`: true, "mirrord_lost_records_total": true, "mirrord_foreign_writes_total": true,
	"mirrord_replication_latency_seconds_bucket": true, `mirrord_partition_failures_total{kind="`: false,
	"mirrord_refresh_duration_seconds_count": false, `mirrord_refresh_errors_total{.*step="acls"`: false,
	`mirrord_group_sync_total{.*status="failed"`: false, "mirrord_shards_owned": false, "mirrord_source_up": false, "mirrord_destination_up": false,
	`mirrord_memory_bytes{kind="`: false, "mirrord_throttled_seconds_total": false, "mirrord_config_reload_success": false,
	"go_goroutines": false, "process_cpu_seconds_total": false, "mirrord_kafka_client_": false,
}

// Every metric is there from the start, before anything has happened that it would count, and the documentation has it.
func TestEveryMetricIsThereFromTheStart(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	want := func(ofTopics bool) error {
		var body bytes.Buffer
		if err := m.get("/metrics", &body); err != nil {
			return err
		}
		lines := strings.Split(body.String(), "\n")
		for name, ofTopic := range pinned {
			if (ofTopics || !ofTopic) && !slices.ContainsFunc(lines, func(line string) bool { return sampleOf(line, name) }) {
				return fmt.Errorf("there is no %s", name)
			}
		}
		return nil
	}
	Eventually(t, soon, func() error { return want(false) })
	p.S.Topic(t, "t", 1)
	m.Await("MIRRORING", soon, "t")
	Eventually(t, soon, func() error { return want(true) })
	for _, counter := range []string{"mirrord_lost_records_total", "mirrord_foreign_writes_total", "mirrord_filled_offsets_total", "mirrord_partition_failures_total"} {
		if n := m.Metric(counter); n != 0 {
			t.Errorf("%s is %v though nothing happened", counter, n)
		}
	}
	doc, err := os.ReadFile("../../docs/metrics.md")
	must(t, err)
	for name := range pinned {
		name, _, _ = strings.Cut(name, "{")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")
		if strings.HasPrefix(name, "mirrord_") && !strings.Contains(string(doc), "`"+name) {
			t.Errorf("docs/metrics.md has no %s", name)
		}
	}
}

// sampleOf reports whether a line is a sample of a metric: its name, and if a label is named, that too.
func sampleOf(line, name string) bool {
	name, label, _ := strings.Cut(name, "{")
	return strings.HasPrefix(line, name) && strings.Contains(line, strings.TrimPrefix(label, ".*"))
}
