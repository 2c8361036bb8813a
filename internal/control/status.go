package control

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// List shows all mirrors.
func (o *Operator) List(ctx context.Context) error {
	v, err := o.loaded(ctx)
	if err != nil {
		return err
	}
	rows := []MirrorRow{}
	for _, m := range v.Mirrors() {
		rows = append(rows, MirrorRowOf(v, m))
	}
	if o.JSON {
		return o.writeJSON(rows)
	}
	t := o.table("MIRROR", "SOURCE", "CLUSTER", "TOPICS", "PARTITIONS", "STATES")
	for _, r := range rows {
		t.row(r.Mirror, r.SourceBootstrap, dash(r.SourceClusterID), strconv.Itoa(r.Topics), strconv.Itoa(r.Partitions), dash(stateCounts(r.States)))
	}
	t.flush()
	o.tellFindings(v, "")
	return nil
}

// tellFindings names what is wrong with mirrors as a whole.
func (o *Operator) tellFindings(v *statestore.View, only string) {
	for _, m := range v.Mirrors() {
		if only != "" && m.Name != only {
			continue
		}
		if m.Finding.Message != "" {
			o.tell("mirror %s: %s", m.Name, m.Finding.Message)
		}
		status := v.RefreshStatus(m.Name)
		for _, note := range status.Notes {
			o.tell("mirror %s: %s", m.Name, note)
		}
		for _, f := range status.Failures {
			more := ""
			if f.Count > 1 {
				more = fmt.Sprintf(", and %d more", f.Count-1)
			}
			o.tell("mirror %s: %s not level since %s: %s%s", m.Name, f.Step, time.UnixMilli(f.SinceMillis).Format(time.DateTime), f.Message, more)
		}
	}
}

// tellModes says how mirrors copy transactions and fill holes: what auto has decided by what the clusters allow.
func (o *Operator) tellModes(v *statestore.View, names []string) {
	for _, name := range names {
		if m, ok := v.Mirror(name); ok && m.TransactionsMode != "" && m.FillersMode != "" {
			o.tell("mirror %s: transactions %s, holes filled by %s", name, m.TransactionsMode, m.FillersMode)
		}
	}
}

func stateCounts(states map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(states)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, states[name]))
	}
	return strings.Join(parts, ", ")
}

// DescribeOptions narrow Describe.
type DescribeOptions struct {
	Mirror string // empty: all
	Failed bool   // FAILED partitions only, and topics that cannot be created
	Groups bool   // group offsets instead of partitions
}

// Describe shows partitions, with log ends read from the destination now, or group offsets.
func (o *Operator) Describe(ctx context.Context, opts DescribeOptions) error {
	v, err := o.loaded(ctx)
	if err != nil {
		return err
	}
	names := []string{opts.Mirror}
	if opts.Mirror == "" {
		names = names[:0]
		for _, m := range v.Mirrors() {
			names = append(names, m.Name)
		}
	} else if _, err := mirrorIn(v, opts.Mirror); err != nil {
		return err
	}
	if opts.Groups {
		return o.describeGroups(v, names, opts)
	}
	rows := []PartitionRow{}
	for _, name := range names {
		rows = append(rows, PartitionRows(v, name)...)
	}
	if opts.Failed {
		rows = slices.DeleteFunc(rows, func(r PartitionRow) bool {
			return r.State != mirror.Failed.String() && (r.Partition >= 0 || r.State != mirror.Unknown.String())
		})
	}
	measure(ctx, o.Destination, rows, func(PartitionRow) bool { return true })
	o.tellModes(v, names)
	o.tellFindings(v, opts.Mirror)
	if o.JSON {
		return o.writeJSON(rows)
	}
	o.partitionTable(rows)
	return nil
}

// measure reads the destination's log ends of some partitions now, in one go, over what was reported.
func measure(ctx context.Context, destination *kafka.Cluster, rows []PartitionRow, which func(PartitionRow) bool) {
	tps := make([]kafka.TP, 0, len(rows))
	for _, r := range rows {
		if r.Partition >= 0 && !r.gone && which(r) {
			tps = append(tps, kafka.TP{Topic: r.Topic, Partition: r.Partition, LeaderEpoch: -1})
		}
	}
	if len(tps) == 0 {
		return
	}
	ends := destination.Ranges(ctx, tps)
	for i := range rows {
		r := &rows[i]
		end, ok := ends[kafka.TP{Topic: r.Topic, Partition: r.Partition, LeaderEpoch: -1}]
		if !ok || end.Err != nil || r.gone {
			continue
		}
		r.DestinationOffset = end.HighWatermark
		if r.State != mirror.Stopped.String() && r.SourceOffset >= 0 {
			r.Lag = max(0, r.SourceOffset-r.DestinationOffset)
		}
		if r.Lag == 0 {
			r.LagSeconds = 0
		}
	}
}

func (o *Operator) partitionTable(rows []PartitionRow) {
	t := o.table("MIRROR", "TOPIC", "PARTITION", "STATE", "SOURCE", "DESTINATION", "LAG", "LAG(s)", "OWNER", "MESSAGE")
	for _, r := range rows {
		state := r.State
		if r.State == mirror.Failed.String() && r.RetryAttempt >= 0 {
			state += fmt.Sprintf(" (attempt %d)", r.RetryAttempt)
		}
		t.row(r.Mirror, r.Topic, known(int64(r.Partition)), state, known(r.SourceOffset), known(r.DestinationOffset), known(r.Lag),
			seconds(r.LagSeconds), dash(r.Owner), r.ErrorMessage)
	}
	t.flush()
}

func (o *Operator) describeGroups(v *statestore.View, names []string, opts DescribeOptions) error {
	rows := []GroupRow{}
	for _, name := range names {
		rows = append(rows, GroupRows(v, name)...)
	}
	if opts.Failed {
		rows = slices.DeleteFunc(rows, func(r GroupRow) bool { return r.Status != "failed" })
	}
	if o.JSON {
		return o.writeJSON(rows)
	}
	t := o.table("MIRROR", "GROUP", "TYPE", "TOPIC", "PARTITION", "SOURCE", "DESTINATION", "STATUS", "REASON")
	for _, r := range rows {
		t.row(r.Mirror, groupID(r.Group), r.Type, dash(r.Topic), known(int64(r.Partition)), known(r.SourceOffset), known(r.DestinationOffset), r.Status, r.Reason)
	}
	t.flush()
	return nil
}

// Dump shows all records of the state topic that count, shard by shard.
func (o *Operator) Dump(ctx context.Context) error {
	v, err := o.loaded(ctx)
	if err != nil {
		return err
	}
	rows := []statestore.DumpedRecord{}
	for shard := range v.Shards() {
		rows = append(rows, v.Dump(shard)...)
	}
	if n := v.Unknown(); n > 0 {
		o.tell("%d records of types that this release does not know were skipped", n)
	}
	if o.JSON {
		return o.writeJSON(rows)
	}
	t := o.table("SHARD", "TYPE", "RECORD", "CONTENT")
	for _, r := range rows {
		content, err := json.Marshal(r.Content)
		if err != nil {
			return err
		}
		t.row(strconv.Itoa(int(r.Shard)), strconv.Itoa(int(r.Type)), r.Name, string(content))
	}
	t.flush()
	return nil
}

func (o *Operator) writeJSON(v any) error {
	e := json.NewEncoder(o.Out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// groupID shows that a group has the empty id, which older clients commit by.
func groupID(group string) string {
	if group == "" {
		return `""`
	}
	return group
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func known(n int64) string {
	if n < 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

func seconds(s float64) string {
	switch {
	case s < 0:
		return "-"
	case s > 0 && s < 0.05:
		return "<0.1" // 0.0 would say that it is level
	}
	return strconv.FormatFloat(s, 'f', 1, 64)
}
