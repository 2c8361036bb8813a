package control

import (
	"cmp"
	"strings"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// The rows below are what operators see, the same in the HTTP API and in the command line's --json. Field names are
// part of the product's interface. Offsets and lag are −1 when unknown.

// PartitionRow is one mirror partition. A topic that has no partitions yet, or was stopped before it had any, is a row with
// Partition −1.
type PartitionRow struct {
	Mirror            string  `json:"mirror"`
	Topic             string  `json:"topic"`
	Partition         int32   `json:"partition"`
	SourceOffset      int64   `json:"sourceOffset"`
	DestinationOffset int64   `json:"destinationOffset"`
	Lag               int64   `json:"lag"` // −1 also when STOPPED
	LagSeconds        float64 `json:"lagSeconds"`
	State             string  `json:"state"`
	PreviousState     string  `json:"previousState"`
	RetryAttempt      int16   `json:"retryAttempt"` // −1: waits for recover
	ErrorMessage      string  `json:"errorMessage"`
	LastMirrorEpoch   int32   `json:"lastMirrorEpoch"`
	LastMirrorOffset  int64   `json:"lastMirrorOffset"`
	Owner             string  `json:"owner"`

	gone bool // the mirror topic is: what has its name now, if anything, is not measured
}

// GroupRow is one partition of a group's offsets.
type GroupRow struct {
	Mirror            string `json:"mirror"`
	Group             string `json:"group"`
	Type              string `json:"type"`
	Topic             string `json:"topic"`
	Partition         int32  `json:"partition"`
	SourceOffset      int64  `json:"sourceOffset"`
	DestinationOffset int64  `json:"destinationOffset"`
	Status            string `json:"status"`
	Reason            string `json:"reason"`
}

// MirrorRow is one mirror in short.
type MirrorRow struct {
	Mirror          string         `json:"mirror"`
	SourceClusterID string         `json:"sourceClusterId"`
	SourceBootstrap string         `json:"sourceBootstrap"`
	Topics          int            `json:"topics"`
	Partitions      int            `json:"partitions"`
	States          map[string]int `json:"states"` // partitions by state; states without any are left out
}

// MirrorRowOf sums up a mirror.
func MirrorRowOf(v *statestore.View, m statestore.Mirror) MirrorRow {
	row := MirrorRow{
		Mirror: m.Name, SourceClusterID: m.LearntClusterID, SourceBootstrap: strings.Join(m.Source.BootstrapServers, ","),
		Topics: len(v.Topics(m.Name)), States: map[string]int{},
	}
	if row.SourceClusterID == "" {
		row.SourceClusterID = m.SourceClusterID
	}
	for _, p := range v.Partitions(m.Name) {
		row.Partitions++
		row.States[p.State.String()]++
	}
	return row
}

// PartitionRows are the partitions of a mirror, by topic and index.
func PartitionRows(v *statestore.View, mirrorName string) []PartitionRow {
	rows, seen := []PartitionRow{}, map[string]bool{}
	topics := map[string]statestore.Topic{}
	for _, t := range v.Topics(mirrorName) {
		topics[t.Name] = t
	}
	m, _ := v.Mirror(mirrorName)
	for _, p := range v.Partitions(mirrorName) {
		seen[p.Topic] = true
		row := PartitionRowOf(v, p)
		if row.ErrorMessage == "" && p.State != mirror.Stopped { // what is the matter with the topic as a whole
			row.ErrorMessage = cmp.Or(topics[p.Topic].Message, m.Finding.Message)
		}
		rows = append(rows, row)
	}
	for _, t := range v.Topics(mirrorName) {
		if !seen[t.Name] && t.Partitions == 0 {
			rows = append(rows, rowWithout(t))
		}
	}
	return rows
}

// rowWithout shows a topic that has no partitions: why, and for pause and stop that they are obeyed.
func rowWithout(t statestore.Topic) PartitionRow {
	row := PartitionRow{
		Mirror: t.Mirror, Topic: t.Name, Partition: -1, SourceOffset: -1, DestinationOffset: -1, Lag: -1, LagSeconds: -1,
		State: mirror.Unknown.String(), ErrorMessage: t.Finding.Message, LastMirrorEpoch: -1, LastMirrorOffset: -1,
	}
	if t.Wish == mirror.Paused || t.Wish == mirror.Stopped {
		row.State = t.Wish.String()
	}
	if row.ErrorMessage == "" {
		row.ErrorMessage = notThere(t)
	}
	return row
}

// PartitionRowOf joins what the view knows about a partition.
func PartitionRowOf(v *statestore.View, p statestore.PartitionState) PartitionRow {
	row := PartitionRow{
		Mirror: p.Mirror, Topic: p.Topic, Partition: p.Index, SourceOffset: -1, DestinationOffset: -1, Lag: -1, LagSeconds: -1,
		State: p.State.String(), PreviousState: p.Previous.String(), RetryAttempt: p.RetryAttempt, ErrorMessage: p.ErrorMessage,
		gone: p.State == mirror.Failed && p.Kind == mirror.DestinationGone,
	}
	if t, ok := v.Topic(p.Mirror, p.Topic); ok && p.State == mirror.Paused && p.ErrorMessage == "" {
		row.ErrorMessage = t.Message // why, where it was not a command
	}
	last, _ := v.LastMirror(p.Partition)
	row.LastMirrorEpoch, row.LastMirrorOffset = last.LeaderEpoch, last.Offset
	if at, _, ok := v.Report(p.Partition); ok {
		row.SourceOffset, row.DestinationOffset = at.SourceOffset, at.DestinationOffset
		if row.gone {
			row.DestinationOffset = -1
		} else if p.State != mirror.Stopped && at.SourceOffset >= 0 && at.DestinationOffset >= 0 {
			row.Lag, row.LagSeconds = max(0, at.SourceOffset-at.DestinationOffset), float64(at.LagMillis)/1000
		}
	}
	if claim, ok := v.ClaimOf(p.Partition); ok && !claim.Released {
		row.Owner = claim.Owner
	}
	return row
}

// GroupRows are the offsets of a mirror's groups, by group.
func GroupRows(v *statestore.View, mirrorName string) []GroupRow {
	rows := []GroupRow{}
	for _, g := range v.Groups(mirrorName) {
		for _, r := range g.Rows {
			rows = append(rows, GroupRow{
				Mirror: mirrorName, Group: g.Group, Type: g.Type, Topic: r.Topic, Partition: r.Partition,
				SourceOffset: r.SourceOffset, DestinationOffset: r.DestinationOffset, Status: r.Status, Reason: r.Reason,
			})
		}
	}
	return rows
}
