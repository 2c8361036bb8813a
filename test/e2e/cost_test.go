package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// size is how much there is around the records.
type size struct{ topics, partitions, groups, rules int }

// dataPath are the requests of the data path and of connections: they are no part of a refresh, or mostly not.
var dataPath = []kmsg.Key{kmsg.Fetch, kmsg.Heartbeat, kmsg.ApiVersions, kmsg.SASLHandshake, kmsg.SASLAuthenticate, kmsg.ListOffsets, kmsg.DescribeProducers}

// changes are the requests that change something; a refresh with nothing to do sends none.
var changes = []kmsg.Key{
	kmsg.Produce, kmsg.OffsetCommit, kmsg.OffsetDelete, kmsg.CreateTopics, kmsg.CreatePartitions, kmsg.DeleteRecords, kmsg.CreateACLs,
	kmsg.DeleteACLs, kmsg.IncrementalAlterConfigs, kmsg.AlterConfigs, kmsg.EndTxn, kmsg.TxnOffsetCommit, kmsg.AlterShareGroupOffsets,
}

// A refresh with nothing to do sends a small number of requests to each broker that does not follow from how much there
// is, and changes nothing. MIRRORD_STORM=1 measures it at 5,000 partitions, 2,000 groups and 2,000 access rules.
func TestARefreshWithNothingToDo(t *testing.T) {
	t.Parallel()
	var p Pair
	small, large, limit := size{4, 10, 20, 20}, size{12, 25, 120, 120}, 90*time.Second
	if os.Getenv("MIRRORD_STORM") != "" {
		large, limit = size{50, 100, 2000, 2000}, 5*time.Minute
		p = Pair{StartGuarded(t, "1g"), StartGuarded(t, "1g")} // so much takes long to be taken away
	} else {
		p = GuardedPair(t)
	}
	s := p.As(t, SuperUser, ".*")
	m := NewDaemon(t, s)
	m.Start()
	p.fill(t, size{}, small)
	partitions := small.topics * small.partitions
	awaitAround(t, p, m, small, partitions, limit)
	few := costOfRefreshes(t, p, m)
	p.fill(t, small, large)
	awaitAround(t, p, m, large, partitions+(large.topics-small.topics)*large.partitions, limit)
	many := costOfRefreshes(t, p, m)
	const most, growth = 30, 8 // requests of one refresh to one broker: in all, and more than with hardly anything there
	for side, cost := range many {
		t.Logf("%s, a refresh: %.1f requests with %+v, %.1f with %+v: %s", side, few[side].sum(), small, cost.sum(), large, cost)
		if cost.sum() > most || cost.sum() > few[side].sum()+growth {
			t.Errorf("%s gets %.1f requests with each refresh, %.1f with hardly anything there", side, cost.sum(), few[side].sum())
		}
		for _, key := range changes {
			if n := cost[key]; n > 0 {
				t.Errorf("%s gets %.1f requests of %s with each refresh though nothing has changed", side, n, key.Name())
			}
		}
	}
}

// fill adds what a size has more than another one.
func (p Pair) fill(t *testing.T, from, to size) {
	t.Helper()
	ctx := context.Background()
	var names []string
	for i := from.topics; i < to.topics; i++ {
		names = append(names, fmt.Sprint("t", i))
	}
	for chunk := range slices.Chunk(names, 10) {
		made, err := p.S.Admin().CreateTopics(ctx, int32(to.partitions), 1, nil, chunk...)
		must(t, err)
		must(t, made.Error())
	}
	for _, name := range names {
		p.S.Send(t, []kgo.Opt{kgo.UnknownTopicRetries(-1)}, Numbered(name, 0, 0, 1)...) // a busy broker shows it late
	}
	var wg sync.WaitGroup
	turns, errs := make(chan struct{}, 16), make(chan error, to.groups)
	for i := from.groups; i < to.groups; i++ {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			var all kadm.Offsets
			all.Add(kadm.Offset{Topic: fmt.Sprint("t", i%to.topics), At: 1, LeaderEpoch: -1})
			errs <- persist(time.Minute, func() error { // a broker that is making partitions coordinates late
				return p.S.Admin().CommitAllOffsets(ctx, fmt.Sprint("g", i), all)
			})
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		must(t, err)
	}
	var rules []string
	for i := from.rules; i < to.rules; i++ {
		rules = append(rules, fmt.Sprintf("ALLOW READ User:u%d TOPIC LITERAL t%d", i, i%to.topics))
	}
	p.S.Grant(t, rules...)
}

// awaitAround waits until the destination has everything.
func awaitAround(t *testing.T, p Pair, m *Daemon, want size, partitions int, limit time.Duration) {
	t.Helper()
	Eventually(t, limit, func() error {
		rules, err := p.D.ACLs(context.Background())
		if err != nil {
			return err
		}
		synced := map[string]int{}
		for _, g := range m.Groups() {
			synced[g.Status]++
		}
		if guards := want.topics; synced["synced"] != want.groups || len(rules) != want.rules+guards {
			return fmt.Errorf("groups %v, %d access rules, want %+v", synced, len(rules), want)
		}
		rows := m.Describe()
		level := slices.DeleteFunc(slices.Clone(rows), func(r Partition) bool { return r.State != "MIRRORING" || r.Lag != 0 })
		if len(rows) != partitions || len(level) != partitions {
			return fmt.Errorf("%d partitions, %d are level, want %d", len(rows), len(level), partitions)
		}
		return nil
	})
	m.refreshed(3) // the last change has been seen and reported
}

// cost are requests by what they ask for.
type cost map[kmsg.Key]float64

func (c cost) sum() (n float64) {
	for _, of := range c {
		n += of
	}
	return n
}

func (c cost) String() string {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(c)) {
		words = append(words, fmt.Sprintf("%s %.1f", key.Name(), c[key]))
	}
	return strings.Join(words, ", ")
}

// costOfRefreshes counts the requests that pass the proxies during some refreshes, and divides.
func costOfRefreshes(t *testing.T, p Pair, m *Daemon) map[string]cost {
	t.Helper()
	const refreshes = "mirrord_refresh_duration_seconds_count"
	read := func() map[string]cost {
		all := map[string]cost{}
		for side, c := range map[string]*Cluster{"source": p.S, "destination": p.D} {
			all[side] = cost{}
			for key := range kmsg.MaxKey + 1 {
				if k := kmsg.Key(key); !slices.Contains(dataPath, k) {
					all[side][k] = float64(c.Nodes[0].Proxy.Requests(int16(key)))
				}
			}
		}
		return all
	}
	before, first := read(), m.Metric(refreshes)
	Eventually(t, soon, func() error {
		if n := m.Metric(refreshes) - first; n < 5 {
			return fmt.Errorf("%v refreshes", n)
		}
		return nil
	})
	after, rounds := read(), m.Metric(refreshes)-first
	for side, counts := range after {
		for key, n := range counts {
			if counts[key] = (n - before[side][key]) / rounds; counts[key] == 0 {
				delete(counts, key)
			}
		}
	}
	return after
}
