package fetcher

import (
	"context"
	"fmt"
	"time"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// emptyTxns are the transactional ids of a shard, with which holes are filled where markers are not allowed (protocol
// R12). Their names and number are a stored format: a new owner takes all of them over before it reads a log end.
type emptyTxns struct {
	ids   *kafka.EmptyTxns
	claim int32 // for which they were taken over; −1: not
}

const (
	fillerIDs      = 4
	perTransaction = 13 * time.Millisecond
	longestFill    = time.Hour
)

func (f *fillers) transactionsOf(shard int32) *emptyTxns {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.txns[shard]
	if e == nil {
		names := make([]string, fillerIDs)
		for i := range names {
			names[i] = fmt.Sprintf("__mirror_filler-%d-%d", shard, i)
		}
		e = &emptyTxns{ids: f.pool.deps.Destination.EmptyTxns(names...), claim: -1}
		f.txns[shard] = e
	}
	return e
}

// initFillers takes the transactional ids of the partitions' shards over, once per claim and again after doubt.
func (pool *Pool) initFillers(ctx context.Context, src *source, parts []*part) error {
	if src.mirror.Load().FillersMode != mirror.Transactions {
		return nil
	}
	claims := map[int32]int32{}
	for _, p := range parts {
		p.mu.Lock()
		claims[p.target.Shard] = p.target.Claim
		p.mu.Unlock()
	}
	for shard, claim := range claims {
		e := pool.fills.transactionsOf(shard)
		pool.fills.mu.Lock()
		done := e.claim == claim
		pool.fills.mu.Unlock()
		if done {
			continue
		}
		if err := e.ids.Init(kafka.WithLease(ctx, pool.deps.Lease)); err != nil {
			return err
		}
		pool.fills.mu.Lock()
		e.claim = claim
		pool.fills.mu.Unlock()
	}
	return nil
}

// affordable refuses the jobs that would take too long by empty transactions (protocol R12). Nothing has left for them, so
// that there is no doubt to be cleared up before it is told.
func affordable(jobs []*filling) (rest []*filling) {
	for _, j := range jobs {
		took := time.Duration(j.to-j.at) * perTransaction / fillerIDs
		if took <= longestFill {
			rest = append(rest, j)
			continue
		}
		err := mirror.Errorf(mirror.Refused, "filling offsets %d to %d by empty transactions would take about %v", j.at, j.to-1, took.Round(time.Minute)).
			WithHint("grant mirrord ALTER on the destination cluster and set fillers: markers")
		j.p.unfilled(j, cause{err: err})
	}
	return rest
}

// byTransactions fills by empty transactions and waits until the logs have grown.
func (f *fillers) byTransactions(ctx context.Context, jobs []*filling, counts map[*filling]int64) map[*filling]error {
	outcomes := make(map[*filling]error, len(jobs))
	byShard := map[int32]map[kafka.TP]int{}
	for _, j := range jobs {
		if byShard[j.shard] == nil {
			byShard[j.shard] = map[kafka.TP]int{}
		}
		byShard[j.shard][j.tp] = int(counts[j])
	}
	results := map[kafka.TP]kafka.FillResult{}
	for shard, want := range byShard {
		e := f.transactionsOf(shard)
		for tp, r := range e.ids.Fill(ctx, want) {
			if results[tp] = r; r.Err != nil && kafka.AfterAppendDoubt(r.Err) {
				f.mu.Lock()
				e.claim = -1 // taken over again before the next look
				f.mu.Unlock()
			}
		}
	}
	f.awaitEnds(ctx, jobs, counts, results, outcomes)
	return outcomes
}

// awaitEnds waits for markers that the coordinator writes after it has answered.
func (f *fillers) awaitEnds(ctx context.Context, jobs []*filling, counts map[*filling]int64, results map[kafka.TP]kafka.FillResult, outcomes map[*filling]error) {
	var waiting []*filling
	for _, j := range jobs {
		if outcomes[j] == nil {
			if outcomes[j] = results[j.tp].Err; outcomes[j] == nil {
				waiting = append(waiting, j)
			}
		}
	}
	for pause := time.Millisecond; len(waiting) > 0; pause = min(2*pause, 100*time.Millisecond) {
		tps := make([]kafka.TP, len(waiting))
		for i, j := range waiting {
			tps[i] = j.tp
		}
		ends := f.pool.deps.Destination.LogEnds(ctx, tps)
		rest := waiting[:0:0]
		for _, j := range waiting {
			switch end, want := ends[j.tp], j.at+counts[j]; {
			case end.Err == nil && end.Offset == want:
			case end.Err == nil && end.Offset > want:
				outcomes[j] = endError(end, want)
			case ctx.Err() != nil:
				outcomes[j] = endError(end, want)
			default:
				rest = append(rest, j)
			}
		}
		if waiting = rest; len(waiting) == 0 {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}
