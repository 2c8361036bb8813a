package coordinator

import (
	"slices"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// Pauses between looks at the data path.
const (
	pollDraining = 50 * time.Millisecond // something is to be paused or stopped, and somebody waits for it
	pollSettling = 500 * time.Millisecond
	pollIdle     = 2 * time.Second // also how often positions are reported
	// youth is for how long after a change of state a partition's positions are reported more often: somebody may be
	// watching it.
	youth = 10 * time.Second
	// settleTime is how long a partition has to run after a failure before that is forgotten.
	settleTime = 3 * time.Second
	// reportRows bounds a ShardReport, which has to fit into one record.
	reportRows = 8000
)

// poll asks the data path about its partitions: which have drained, which make progress again, where they are. It reports
// whether there is news.
func (r *runner) poll(now time.Time) (news bool) {
	if len(r.shards) == 0 || now.Sub(r.polled) < r.pace {
		return false
	}
	r.polled = now
	moved := r.deps.DataPath.Moved() // before the positions: what moves meanwhile is seen next time
	if r.pace == pollIdle && moved == r.moved && !r.behind {
		return false
	}
	positions := r.deps.DataPath.Positions()
	r.reports = make(map[mirror.Partition]mirror.PositionReport, len(positions))
	r.behind = false
	for _, p := range positions {
		r.reports[p.Partition] = p
		r.behind = r.behind || !p.OldestUnmirrored.IsZero()
	}
	due := now.Sub(r.reported) >= r.reportPause()
	if due {
		r.reported, r.moved = now, moved
	}
	for _, s := range r.shards {
		happened := r.pace != pollIdle && r.observeAll(s, now) // else none of them waits for anything
		if due || happened {
			r.report(s, now)
		}
		news = news || happened || s.phase == releasing || s.rowsDirty || len(s.epochs) > 0
	}
	return news
}

func (r *runner) reportPause() time.Duration {
	if r.young {
		return pollSettling
	}
	return pollIdle
}

// observeAll observes the partitions of a shard and reports whether anything has happened to one of them.
func (r *runner) observeAll(s *shard, now time.Time) (happened bool) {
	for _, t := range s.parts {
		r.observe(s, t, now)
		happened = happened || t.event.what != nothing
	}
	return happened
}

// paceOf is how often a partition in a state needs a look at the data path.
func paceOf(state statestore.PartitionState) time.Duration {
	switch {
	case state.State == mirror.Pausing, state.State == mirror.Stopping:
		return pollDraining
	case settling(state):
		return pollSettling
	}
	return pollIdle
}

// settling reports whether a partition has yet to show that a failure is over.
func settling(s statestore.PartitionState) bool {
	return s.State == mirror.Mirroring && (s.ErrorMessage != "" || s.RetryAttempt != 0 || s.Kind != mirror.Retriable)
}

// observe turns what the data path says about a partition into what happened to it.
func (r *runner) observe(s *shard, t *part, now time.Time) {
	state, ok := r.view.Partition(t.partition)
	if !ok || state.StateEpoch != t.epoch || t.event.what != nothing {
		return
	}
	report, known := r.reports[t.partition]
	known = known && report.StateEpoch == t.epoch
	switch {
	case state.State == mirror.Pausing || state.State == mirror.Stopping:
		r.observeDrain(t, report, known, now.Before(s.quiet))
	case settling(state) && known && report.DestinationOffset >= 0:
		if t.base < 0 {
			t.base = report.DestinationOffset
		}
		if now.Sub(t.since) >= settleTime && (report.DestinationOffset > t.base || report.Lag() == 0) {
			t.event, t.retries = happening{what: settled}, 0
		}
	}
}

// observeDrain notes that the data path holds nothing of a partition any more. What it was never told of in this process
// it holds nothing of. After a predecessor that did not give up in order, what it has sent may still arrive: then the log
// end is to be looked at until it rests (see locate), for the position is recorded once; likewise where the log may hold
// fillers of an unfinished seeding.
func (r *runner) observeDrain(t *part, report mirror.PositionReport, known, restless bool) {
	state, _ := r.view.Partition(t.partition)
	switch {
	case known && report.Drained && report.DestinationOffset >= 0 && !report.Unlocated && !(restless && state.State == mirror.Stopping):
		epoch := report.SourceEpoch.LeaderEpoch
		if epochs := r.view.Epochs(t.partition); epoch < 0 && len(epochs) > 0 {
			epoch = epochs[len(epochs)-1].LeaderEpoch
		}
		t.event = happening{what: drained, position: mirror.Position{LeaderEpoch: epoch, Offset: report.DestinationOffset}}
	case known && report.Drained, !t.ran && !r.known[t.partition]:
		t.event = happening{what: unlocated}
		if state.State == mirror.Pausing {
			t.event.what = drained
		}
	}
}

// report prepares what the owner last knows about the positions of a shard, if it has changed.
func (r *runner) report(s *shard, now time.Time) {
	if s.phase != driving {
		return
	}
	var rows []statestore.ReportedPosition
	s.epochs = s.epochs[:0]
	for _, p := range s.order {
		at, ok := r.reports[p]
		if !ok { // STOPPED, say: what the source had when it was last seen tells what a failover has lost
			if last, known := r.lastRow(p); known {
				rows = append(rows, last)
			}
			continue
		}
		rows = append(rows, r.positionRow(p, at, now))
		if epochs, news := withEpoch(r.view.Epochs(p), at.SourceEpoch); news {
			s.epochs = append(s.epochs, statestore.SourceEpochs{Partition: p, Epochs: epochs})
		}
	}
	rows = rows[:min(len(rows), reportRows)]
	if !slices.Equal(rows, s.rows) {
		s.rows, s.rowsDirty = rows, true
	}
}

// positionRow is what is reported of a partition. What the data path does not know now, because it has only begun to look
// or a cluster does not answer, stays as it was last known.
func (r *runner) positionRow(p mirror.Partition, at mirror.PositionReport, now time.Time) statestore.ReportedPosition {
	row := statestore.ReportedPosition{Partition: p, SourceOffset: at.SourceOffset, DestinationOffset: at.DestinationOffset}
	if !at.OldestUnmirrored.IsZero() {
		row.LagMillis = max(0, now.Sub(at.OldestUnmirrored).Milliseconds())
	}
	last, known := r.lastRow(p)
	if known && row.DestinationOffset < 0 {
		row.DestinationOffset = last.DestinationOffset
	}
	if known && row.SourceOffset < 0 {
		row.SourceOffset = last.SourceOffset
		if at.OldestUnmirrored.IsZero() {
			row.LagMillis = last.LagMillis
		}
	}
	if row.LagMillis == 0 && row.SourceOffset > row.DestinationOffset && row.DestinationOffset >= 0 {
		row.LagMillis = max(1, last.LagMillis) // of some age in any case
	}
	r.rows[p] = row
	return row
}

// lastRow is what was last reported of a partition, by whoever owned it then.
func (r *runner) lastRow(p mirror.Partition) (statestore.ReportedPosition, bool) {
	if row, known := r.rows[p]; known {
		return row, true
	}
	row, _, known := r.view.Report(p)
	return row, known
}

// keptEpochs is how many leader epochs of the source are remembered.
const keptEpochs = 20

// withEpoch adds a leader epoch to those recorded, if it is newer.
func withEpoch(known []mirror.Position, epoch mirror.Position) ([]mirror.Position, bool) {
	if epoch.LeaderEpoch < 0 || len(known) > 0 && known[len(known)-1].LeaderEpoch >= epoch.LeaderEpoch {
		return known, false
	}
	known = append(slices.Clone(known), epoch)
	return known[max(0, len(known)-keptEpochs):], true
}

// reportRecords are the records that report made, once.
func (r *runner) reportRecords(s *shard, now time.Time) (records []statestore.Record) {
	for _, e := range s.epochs {
		records = append(records, e)
	}
	s.epochs = nil
	if s.rowsDirty {
		s.rowsDirty = false
		records = append(records, statestore.ShardReport{ShardIndex: s.index, Owner: r.deps.Name, AtMillis: now.UnixMilli(), Positions: s.rows})
	}
	return records
}
