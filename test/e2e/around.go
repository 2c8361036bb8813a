package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// soon is how long a rule of the refresh, which runs every second here, may take to show on a machine that is busy.
const soon = 40 * time.Second

// What surrounds the records: settings, groups, access rules, users. All of it is asked of the brokers, by a client of
// the tests' own.

// Set sets settings of a topic. They come in pairs; no value deletes the key.
func (c *Cluster) Set(t testing.TB, topic string, settings ...string) {
	t.Helper()
	var changes []kadm.AlterConfig
	for i := 0; i+1 < len(settings); i += 2 {
		change := kadm.AlterConfig{Op: kadm.SetConfig, Name: settings[i], Value: &settings[i+1]}
		if settings[i+1] == "" {
			change = kadm.AlterConfig{Op: kadm.DeleteConfig, Name: settings[i]}
		}
		changes = append(changes, change)
	}
	results, err := c.adm.AlterTopicConfigs(context.Background(), changes, topic)
	must(t, err)
	for _, r := range results {
		must(t, r.Err)
	}
}

// Explicit are the settings that were set on a topic itself.
func (c *Cluster) Explicit(ctx context.Context, topic string) (map[string]string, error) {
	all, err := c.adm.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return nil, err
	}
	r, err := all.On(topic, nil)
	if err != nil {
		return nil, err
	}
	set := map[string]string{}
	for _, e := range r.Configs {
		if e.Source == kmsg.ConfigSourceDynamicTopicConfig {
			set[e.Key] = e.MaybeValue()
		}
	}
	return set, r.Err
}

// wantSettings demands settings of a topic, in pairs; an empty value demands that the topic has no such setting.
func (c *Cluster) wantSettings(topic string, pairs ...string) error {
	got, err := c.Explicit(context.Background(), topic)
	if err != nil {
		return err
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		if value, ok := got[pairs[i]]; value != pairs[i+1] || ok != (pairs[i+1] != "") {
			return fmt.Errorf("%s has %s=%q, want %q", topic, pairs[i], value, pairs[i+1])
		}
	}
	return nil
}

// Partitions is the number of partitions of a topic; 0: there is no such topic.
func (c *Cluster) Partitions(ctx context.Context, topic string) (int, error) {
	listed, err := c.adm.ListTopics(ctx, topic)
	if err != nil {
		return 0, err
	}
	return len(listed[topic].Partitions), nil
}

// TopicID is the id of a topic.
func (c *Cluster) TopicID(t testing.TB, topic string) kadm.TopicID {
	t.Helper()
	listed, err := c.adm.ListTopics(context.Background(), topic)
	must(t, err)
	must(t, listed[topic].Err)
	return listed[topic].ID
}

// DeleteTopic deletes a topic and waits until it is gone.
func (c *Cluster) DeleteTopic(t testing.TB, topic string) {
	t.Helper()
	_, err := c.adm.DeleteTopic(context.Background(), topic)
	must(t, err)
	Eventually(t, 20*time.Second, func() error {
		n, err := c.Partitions(context.Background(), topic)
		if err == nil && n > 0 {
			err = fmt.Errorf("topic %s is still there", topic)
		}
		return err
	})
}

// Grow adds partitions to a topic.
func (c *Cluster) Grow(t testing.TB, topic string, to int) {
	t.Helper()
	results, err := c.adm.UpdatePartitions(context.Background(), to, topic)
	must(t, err)
	must(t, results.Error())
}

// Commit commits an offset for a group without being its member.
func (c *Cluster) Commit(t testing.TB, group, topic string, partition int32, offset int64) {
	t.Helper()
	c.CommitAs(t, group, kadm.Offset{Topic: topic, Partition: partition, At: offset, LeaderEpoch: -1})
}

// CommitAs commits an offset with all that belongs to it.
func (c *Cluster) CommitAs(t testing.TB, group string, o kadm.Offset) {
	t.Helper()
	var all kadm.Offsets
	all.Add(o)
	must(t, c.adm.CommitAllOffsets(context.Background(), group, all))
}

// Committed is what a group has committed for a partition; offset −1: nothing.
func (c *Cluster) Committed(group, topic string, partition int32) (kadm.Offset, error) {
	all, err := c.adm.FetchOffsets(context.Background(), group)
	if err != nil {
		return kadm.Offset{}, err
	}
	o, ok := all.Lookup(topic, partition)
	if !ok {
		return kadm.Offset{At: -1}, nil
	}
	return o.Offset, o.Err
}

// wantCommitted demands a committed offset.
func (c *Cluster) wantCommitted(group, topic string, partition int32, offset int64) error {
	got, err := c.Committed(group, topic, partition)
	if err == nil && got.At != offset {
		err = fmt.Errorf("group %s has committed %d of %s-%d, want %d", group, got.At, topic, partition, offset)
	}
	return err
}

// ShareStart sets where a share group begins to read a partition.
func (c *Cluster) ShareStart(t testing.TB, group, topic string, offset int64) {
	t.Helper()
	part := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	part.StartOffset = offset
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = group
	req.Topics = []kmsg.AlterShareGroupOffsetsRequestTopic{{Topic: topic, Partitions: []kmsg.AlterShareGroupOffsetsRequestTopicPartition{part}}}
	Eventually(t, 20*time.Second, func() error { // the coordinator's topic may have to be made first
		resp, err := req.RequestWith(context.Background(), c.cl)
		if err != nil {
			return err
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return err
		}
		return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
	})
}

// ShareStartOf is where a share group begins to read partition 0 of a topic; −1: nothing is known.
func (c *Cluster) ShareStartOf(group, topic string) (int64, error) {
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(context.Background(), c.cl)
	if err != nil {
		return -1, err
	}
	for _, tp := range resp.Groups[0].Topics {
		for _, p := range tp.Partitions {
			if tp.Topic == topic && p.Partition == 0 {
				return p.StartOffset, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return -1, nil
}

// rule reads an access rule as it is written in tests: permission, operation, principal, resource type, pattern type and
// name, with spaces between.
func rule(line string) (w struct {
	permission, operation, principal, resource, pattern, name string
},
) {
	if n, err := fmt.Sscan(line, &w.permission, &w.operation, &w.principal, &w.resource, &w.pattern, &w.name); n != 6 {
		panic(fmt.Sprintf("access rule %q: %v", line, err))
	}
	return w
}

// Grant creates access rules.
func (c *Cluster) Grant(t testing.TB, rules ...string) {
	t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, line := range rules {
		w, creation := rule(line), kmsg.NewCreateACLsRequestCreation()
		creation.ResourceName, creation.Principal, creation.Host = w.name, w.principal, "*"
		var errs [4]error
		creation.ResourceType, errs[0] = kmsg.ParseACLResourceType(w.resource)
		creation.ResourcePatternType, errs[1] = kmsg.ParseACLResourcePatternType(w.pattern)
		creation.Operation, errs[2] = kmsg.ParseACLOperation(w.operation)
		creation.PermissionType, errs[3] = kmsg.ParseACLPermissionType(w.permission)
		for _, err := range errs {
			must(t, err)
		}
		req.Creations = append(req.Creations, creation)
	}
	resp, err := req.RequestWith(context.Background(), c.cl)
	must(t, err)
	for i, r := range resp.Results {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			t.Fatalf("%s: %v", rules[i], err)
		}
	}
}

// Revoke deletes access rules.
func (c *Cluster) Revoke(t testing.TB, rules ...string) {
	t.Helper()
	req := kmsg.NewPtrDeleteACLsRequest()
	for _, line := range rules {
		w, f := rule(line), kmsg.NewDeleteACLsRequestFilter()
		f.ResourceName, f.Principal, f.Host = &w.name, &w.principal, kmsg.StringPtr("*")
		f.ResourceType, _ = kmsg.ParseACLResourceType(w.resource)
		f.ResourcePatternType, _ = kmsg.ParseACLResourcePatternType(w.pattern)
		f.Operation, _ = kmsg.ParseACLOperation(w.operation)
		f.PermissionType, _ = kmsg.ParseACLPermissionType(w.permission)
		req.Filters = append(req.Filters, f)
	}
	resp, err := req.RequestWith(context.Background(), c.cl)
	must(t, err)
	for i, r := range resp.Results {
		must(t, kerr.ErrorForCode(r.ErrorCode))
		if len(r.MatchingACLs) != 1 {
			t.Fatalf("%s: %d rules match", rules[i], len(r.MatchingACLs))
		}
	}
}

// ACLs are all access rules, as Grant reads them, sorted; there are none without an authorizer.
func (c *Cluster) ACLs(ctx context.Context) (lines []string, err error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(ctx, c.cl)
	if err != nil {
		return nil, err
	}
	if resp.ErrorCode == kerr.SecurityDisabled.Code {
		return nil, nil
	}
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			lines = append(lines, strings.Join([]string{
				a.PermissionType.String(), a.Operation.String(), a.Principal, r.ResourceType.String(),
				r.ResourcePatternType.String(), r.ResourceName,
			}, " "))
		}
	}
	slices.Sort(lines)
	return lines, kerr.ErrorForCode(resp.ErrorCode)
}

// wantACLs demands that rules are there; one that begins with "no " must not be.
func (c *Cluster) wantACLs(rules ...string) error {
	all, err := c.ACLs(context.Background())
	if err != nil {
		return err
	}
	for _, r := range rules {
		line, absent := strings.CutPrefix(r, "no ")
		if slices.Contains(all, line) == absent {
			return fmt.Errorf("want %q, there are\n%s", r, strings.Join(all, "\n"))
		}
	}
	return nil
}

// GroupRow is one object of describe --groups --json.
type GroupRow struct {
	Mirror, Group, Type, Topic      string
	Partition                       int32
	SourceOffset, DestinationOffset int64
	Status, Reason                  string
}

// Partition describes one partition.
func (d *Daemon) Partition(topic string, partition int32) (Partition, error) {
	d.t.Helper()
	for _, p := range d.Describe() {
		if p.Topic == topic && p.Partition == partition {
			return p, nil
		}
	}
	return Partition{}, fmt.Errorf("describe does not list %s-%d", topic, partition)
}

// Groups are the offsets of all groups.
func (d *Daemon) Groups() (rows []GroupRow) {
	d.t.Helper()
	must(d.t, json.Unmarshal([]byte(d.Do("describe", "--groups", "--json").Out), &rows))
	return rows
}

// GroupRow is what describe says about a group's offset.
func (d *Daemon) GroupRow(group, topic string, partition int32) (GroupRow, error) {
	d.t.Helper()
	for _, r := range d.Groups() {
		if r.Group == group && r.Topic == topic && r.Partition == partition {
			return r, nil
		}
	}
	return GroupRow{}, fmt.Errorf("describe --groups lists nothing about %s, %s-%d", group, topic, partition)
}

// wantGroup demands what describe says about a group's offset of partition 0: the status, and words of the reason.
func (d *Daemon) wantGroup(group, topic, status, reason string) error {
	d.t.Helper()
	r, err := d.GroupRow(group, topic, 0)
	if err == nil && (r.Status != status || !strings.Contains(r.Reason, reason)) {
		err = fmt.Errorf("group %s is %s (%s), want %s (%s)", group, r.Status, r.Reason, status, reason)
	}
	return err
}

// logLines counts the log lines that hold all the words.
func (d *Daemon) logLines(words ...string) (n int) {
lines:
	for line := range strings.Lines(d.Log()) {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}

// wantLog demands a log line that holds all the words.
func (d *Daemon) wantLog(words ...string) error {
	if d.logLines(words...) == 0 {
		return fmt.Errorf("no log line holds %q", words)
	}
	return nil
}

// wantState demands a state of a partition, and words of its message.
func (d *Daemon) wantState(topic string, partition int32, state, message string) error {
	d.t.Helper()
	p, err := d.Partition(topic, partition)
	if err == nil && (p.State != state || !strings.Contains(p.ErrorMessage, message)) {
		err = fmt.Errorf("%s-%d is %s (%s), want %s (%s)", topic, partition, p.State, p.ErrorMessage, state, message)
	}
	return err
}

// wantEnd demands the log end of a partition.
func (c *Cluster) wantEnd(topic string, partition int32, end int64) error {
	logs, err := c.Logs(context.Background(), topic)
	if err == nil && logs[partition].End != end {
		err = fmt.Errorf("%s-%d ends at %d, want %d", topic, partition, logs[partition].End, end)
	}
	return err
}

// In is the same instance for a subtest, whose failures are then its own.
func (d *Daemon) In(t testing.TB) *Daemon {
	c := *d
	c.t = t
	return &c
}

// refreshed waits for as many whole refreshes of the mirror as are asked for.
func (d *Daemon) refreshed(rounds float64) {
	d.t.Helper()
	const name = "mirrord_refresh_duration_seconds_count"
	first := d.Metric(name) + 1 // one may have begun before what is waited for
	Eventually(d.t, soon, func() error {
		if n := d.Metric(name); n < first+rounds {
			return fmt.Errorf("%v of %v refreshes", n-first, rounds)
		}
		return nil
	})
}

// wantSource demands what the state topic says about a setting of the source.
func (d *Daemon) wantSource(topic, key, value string) error {
	d.t.Helper()
	var rows []struct {
		Type    int
		Content json.RawMessage
	}
	if err := json.Unmarshal([]byte(d.Do("state", "dump", "--json").Out), &rows); err != nil {
		return err
	}
	const topicSettings = 108
	for _, r := range rows {
		var settings struct {
			Topic  string
			Source map[string]string
		}
		if r.Type != topicSettings {
			continue
		}
		if err := json.Unmarshal(r.Content, &settings); err != nil {
			return err
		}
		if settings.Topic == topic && settings.Source[key] == value {
			return nil
		}
	}
	return fmt.Errorf("the state topic does not say %s=%s of %s", key, value, topic)
}

// check runs mirrord check on the instance's file.
func (d *Daemon) check() Result {
	d.t.Helper()
	bin, err := built()
	must(d.t, err)
	var out, errOut bytes.Buffer
	cmd := exec.Command(bin, "check", "--config", d.ConfigFile())
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	return Result{Out: out.String(), Err: errOut.String(), Code: cmd.ProcessState.ExitCode()}
}

// wantPartitions demands how many partitions a topic has.
func (c *Cluster) wantPartitions(topic string, n int) error {
	got, err := c.Partitions(context.Background(), topic)
	if err == nil && got != n {
		err = fmt.Errorf("%s has %d partitions, want %d", topic, got, n)
	}
	return err
}

// wantStart demands the log start of a partition.
func (c *Cluster) wantStart(topic string, partition int32, start int64) error {
	logs, err := c.Logs(context.Background(), topic)
	if err == nil && logs[partition].Start != start {
		err = fmt.Errorf("%s-%d begins at %d, want %d", topic, partition, logs[partition].Start, start)
	}
	return err
}
