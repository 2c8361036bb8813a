package mmm

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// counter counts the requests that a cluster gets, by name.
type counter struct {
	mu sync.Mutex
	n  map[string]int
}

func countRequests(f *kfake.Cluster) *counter {
	c := &counter{n: map[string]int{}}
	f.Control(func(req kmsg.Request) (kmsg.Response, error, bool) {
		f.KeepControl()
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n[kmsg.NameForKey(req.Key())]++
		return nil, nil, false
	})
	return c
}

func (c *counter) take() (all map[string]int, sum int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all, c.n = c.n, map[string]int{}
	for _, n := range all {
		sum += n
	}
	return all, sum
}

// A refresh with nothing to do sends a small constant number of requests per broker, however much there is.
func TestALevelRefreshIsCheap(t *testing.T) {
	const topics, partitions, groups, acls = 50, 100, 2000, 2000
	const brokers, most = 3, 12 // requests that one refresh may send to each broker of a cluster
	r := newRig(t, rigOptions{
		source: []kfake.Opt{kfake.NumBrokers(brokers)}, destination: []kfake.Opt{kfake.NumBrokers(brokers)},
		define: func(d *mirror.Definition) { d.TopicsInclude, d.ReadOnly = []string{"t.*"}, mirror.Off },
	})
	r.cfg.RefreshInterval, r.cfg.GroupSyncInterval = time.Second, time.Second
	var names []string
	for i := range topics {
		names = append(names, fmt.Sprintf("t%d", i))
		r.topic(names[i], partitions, 1)
	}
	commits := map[string]map[kafka.TopicPartition]kafka.CommittedOffset{}
	for i := range groups {
		commits[fmt.Sprintf("g%d", i)] = map[kafka.TopicPartition]kafka.CommittedOffset{
			{Topic: names[i%topics], Partition: int32(i % partitions)}: {Offset: 1, LeaderEpoch: -1},
		}
	}
	if failed := r.src.CommitMany(t.Context(), commits); len(failed) > 0 {
		t.Fatalf("%d groups could not be committed", len(failed))
	}
	var rules []kafka.ACL
	for i := range acls {
		rules = append(rules, acl(allow, "READ", names[i%topics], fmt.Sprintf("User:u%d", i)))
	}
	noErrors(t, r.src.CreateACLs(t.Context(), rules))
	r.run()
	for _, name := range names {
		r.mirrorOf(name, partitions, 1)
	}
	r.eventually("all is level", func() bool {
		synced := 0
		for _, g := range r.state.Groups("m") {
			if status, _ := worst(g.Rows); status == StatusSynced && g.Rows[0].DestinationOffset == 1 {
				synced++
			}
		}
		return synced == groups && len(r.state.ACLs("m")) == acls
	})
	r.cycles(1)
	source, destination := countRequests(r.fs), countRequests(r.fd)
	before := r.state.count()
	const rounds = 3
	r.cycles(rounds)
	for side, c := range map[string]*counter{"source": source, "destination": destination} {
		all, sum := c.take()
		t.Logf("%s: %d requests in %d refreshes of %d brokers: %v", side, sum, rounds, brokers, all)
		if sum > (rounds+1)*most*brokers { // one more may have begun
			t.Errorf("%s got %d requests in %d refreshes: %v", side, sum, rounds, all)
		}
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if name == "OffsetCommit" || name == "CreateACLs" || name == "IncrementalAlterConfigs" || name == "CreatePartitions" {
				t.Errorf("%s got %d requests of %s with nothing to do", side, all[name], name)
			}
		}
	}
	if now := r.state.count(); now != before {
		t.Errorf("%d records were written with nothing to do", now-before)
	}
}
