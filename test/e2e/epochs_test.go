package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// epochs are the leader epochs of a topic's partitions, and their replicas in order.
func (c *Cluster) epochs(t testing.TB, topic string) (epochs []int32, replicas [][]int32, leaders []int32) {
	t.Helper()
	listed, err := c.adm.ListTopics(context.Background(), topic)
	must(t, err)
	for _, p := range listed[topic].Partitions.Sorted() {
		must(t, p.Err)
		epochs, replicas, leaders = append(epochs, p.LeaderEpoch), append(replicas, p.Replicas), append(leaders, p.Leader)
	}
	return epochs, replicas, leaders
}

// settled demands that no reassignment is under way.
func (c *Cluster) settled(t testing.TB) {
	t.Helper()
	Eventually(t, 20*time.Second, func() error {
		under, err := c.adm.ListPartitionReassignments(context.Background(), nil)
		if err == nil && len(under) > 0 {
			err = fmt.Errorf("reassignments are under way: %v", under)
		}
		return err
	})
}

// Three brokers. A promotion raises the leader epoch of every partition, where a broker is free to hold a replica for a
// moment and where every broker holds one already; continuous mode keeps it above the source's from the start. Replicas
// are as before in the end, and somebody else's reassignment is not disturbed.
func TestEpochs(t *testing.T) {
	t.Parallel()
	const partitions = 12
	s, d := StartCluster(t, Options{}), StartCluster(t, Options{Nodes: 3})
	p := Pair{s, d}
	for _, topic := range []string{"two", "all", "off", "continuous", "everywhere"} {
		s.Topic(t, topic, partitions)
		for i := range int32(partitions) {
			s.Send(t, nil, Numbered(topic, i, 0, 10)...)
		}
	}
	define := func(name, topic string, factor int, fencing string) string {
		return propertiesFile(t, "bootstrap.servers="+s.Bootstrap(), "topics.include="+topic, fmt.Sprint("replication.factor=", factor), "epoch.fencing="+fencing)
	}
	set := p.Mirror()
	set.Mirror, set.Extra = "", []string{"session_timeout: 6s"}
	m := NewDaemon(t, set)
	m.Start()
	for name, file := range map[string]string{
		"two": define("two", "two", 2, "promotion"), "all": define("all", "all", 3, "promotion"),
		"off": define("off", "off", 2, "off"), "continuous": define("continuous", "continuous", 2, "continuous"),
		"everywhere": define("everywhere", "everywhere", 3, "continuous"),
	} {
		m.Do("create", "--mirror", name, "--mirror-config", file)
	}
	AwaitLevel(t, s, d, 60*time.Second, "two", "all", "off", "continuous", "everywhere")

	t.Run("continuous", func(t *testing.T) {
		Eventually(t, 40*time.Second, func() error {
			epochs, _, _ := d.epochs(t, "continuous")
			if slices.Min(epochs) < 10 {
				return fmt.Errorf("leader epochs are %v", epochs)
			}
			return nil
		})
		m.Await("MIRRORING", 20*time.Second, "continuous")
	})
	t.Run("continuous, a replica on every broker", func(t *testing.T) { // asked once, impossible without moving leaders, mirrored on
		m.Await("MIRRORING", 20*time.Second, "everywhere")
		m.refreshed(3)
		if epochs, _, _ := d.epochs(t, "everywhere"); slices.Max(epochs) > 0 {
			t.Errorf("leader epochs are %v", epochs)
		}
		asked := map[mirror.Partition]int{}
		for _, r := range StateLog(t, d) {
			if s, ok := r.Record.(statestore.PartitionState); ok && s.Topic == "everywhere" && s.State == mirror.EpochFencing {
				asked[s.Partition]++
			}
		}
		for p, n := range asked {
			if n > 1 {
				t.Errorf("%s: EPOCH_FENCING was entered %d times for one leader epoch of the source", p, n)
			}
		}
		want(t, "partitions that asked", len(asked), partitions)
	})
	t.Run("promotion", func(t *testing.T) {
		foreign := d.reassignForGood(t, "two")
		before := map[string][]int32{}
		placed := map[string][][]int32{}
		for _, topic := range []string{"two", "all", "off"} {
			before[topic], placed[topic], _ = d.epochs(t, topic)
		}
		for _, topic := range []string{"two", "all", "off"} {
			m.Do("stop", "--mirror", topic, "--topics", topic)
		}
		d.settled(t)
		for _, topic := range []string{"two", "all", "off"} {
			epochs, replicas, leaders := d.epochs(t, topic)
			for i := range epochs {
				rise := epochs[i] - before[topic][i]
				if topic == "off" && rise != 0 || topic != "off" && rise < 1 {
					t.Errorf("%s-%d: the leader epoch rose by %d", topic, i, rise)
				}
				wanted := placed[topic][i]
				if topic == "two" && i == 0 {
					wanted = foreign
				}
				if !slices.Equal(replicas[i], wanted) {
					t.Errorf("%s-%d: replicas are %v, %v before", topic, i, replicas[i], wanted)
				}
				if topic == "all" && leaders[i] != replicas[i][0] {
					t.Logf("%s-%d is led by %d of %v", topic, i, leaders[i], replicas[i])
				}
			}
			must(t, writable(d, topic, partitions))
		}
	})
	t.Run("failback", func(t *testing.T) { // epochs that were raised do not keep logs from being compared
		m.Do("stop", "--mirror", "continuous", "--topics", "continuous")
		m.Do("start", "--mirror", "continuous", "--topics", "continuous")
		s.Send(t, nil, Numbered("continuous", 0, 10, 10)...)
		AwaitLevel(t, s, d, 30*time.Second, "continuous")
		Identical(t, s, d, "continuous")
	})
	SoundState(t, d)
	if strings.Contains(m.Log(), "level=ERROR") {
		t.Error("an error was logged")
	}
}

// reassignForGood moves partition 0 of a topic to other brokers, and gives its replicas to be.
func (c *Cluster) reassignForGood(t *testing.T, topic string) []int32 {
	t.Helper()
	_, replicas, _ := c.epochs(t, topic)
	third := 6 - replicas[0][0] - replicas[0][1]
	wanted := []int32{replicas[0][0], third}
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(topic, 0, wanted)
	resp, err := c.adm.AlterPartitionAssignments(context.Background(), req)
	must(t, err)
	must(t, resp.Error())
	return wanted
}

// On one broker no leader epoch can be raised: that is said once, and keeps nothing from being promoted.
func TestEpochsOfOneBroker(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 4)
	p.S.Send(t, nil, Numbered("t", 0, 0, 10)...)
	m := NewDaemon(t, p.Mirror("t"))
	m.Start()
	AwaitLevel(t, p.S, p.D, 20*time.Second, "t")
	for range 3 {
		m.Do("stop", "--mirror", "east", "--topics", "t")
		m.Do("start", "--mirror", "east", "--topics", "t")
	}
	want(t, "times that it is said", strings.Count(m.Log(), "leader epochs cannot be raised"), 1)
	m.Do("stop", "--mirror", "east", "--topics", "t")
	promoted(t, p, m, "t")
}

// Leaders move at the source again and again, so its leader epochs rise: continuous mode raises those of the destination
// in time, each time far enough that it is not at once in need again, and mirrors on.
func TestEpochsFollowTheSource(t *testing.T) {
	t.Parallel()
	const partitions, rounds = 3, 4
	s, d := StartCluster(t, Options{Nodes: 2}), StartCluster(t, Options{Nodes: 2})
	p := Pair{s, d}
	s.Topic(t, "t", partitions)
	set := p.Mirror("t")
	set.MirrorExtra = []string{"epoch_fencing: continuous", "replication_factor: 1"}
	m := NewDaemon(t, set)
	m.Start()
	for round := range rounds {
		for i := range int32(partitions) {
			s.Send(t, nil, Numbered("t", i, 10*round, 10)...)
		}
		AwaitLevel(t, s, d, soon, "t")
		Eventually(t, soon, func() error {
			source, _, _ := s.epochs(t, "t")
			copied, _, _ := d.epochs(t, "t")
			for i := range source {
				if copied[i] < source[i]+3 {
					return fmt.Errorf("leader epochs of the source are %v, of the destination %v", source, copied)
				}
			}
			return nil
		})
		if round < rounds-1 {
			s.raise(t, "t", partitions)
		}
	}
	m.Await("MIRRORING", soon, "t")
	Identical(t, s, d, "t")
	before, _, _ := s.epochs(t, "t")
	raised := Transitions(SoundState(t, d))[Transition{mirror.Mirroring, mirror.EpochFencing}]
	t.Logf("leader epochs of the source are %v, EPOCH_FENCING was entered %d times", before, raised)
	if raised < 2*partitions || raised > (rounds-1)*partitions {
		t.Errorf("EPOCH_FENCING was entered %d times by %d partitions in %d rounds", raised, partitions, rounds)
	}
}

// raise raises leader epochs by four, by moving leadership between the replicas.
func (c *Cluster) raise(t *testing.T, topic string, partitions int32) {
	t.Helper()
	for range 4 {
		_, replicas, _ := c.epochs(t, topic)
		var req kadm.AlterPartitionAssignmentsReq
		first := map[int32]int32{}
		for i := range partitions {
			of := slices.Clone(replicas[i])
			slices.Reverse(of)
			req.Assign(topic, i, of)
			first[i] = of[0]
		}
		resp, err := c.adm.AlterPartitionAssignments(context.Background(), req)
		must(t, err)
		must(t, resp.Error())
		c.settled(t)
		Eventually(t, 20*time.Second, func() error {
			_, err := c.adm.ElectLeaders(context.Background(), kadm.ElectPreferredReplica, nil)
			if err != nil {
				return err
			}
			_, _, leaders := c.epochs(t, topic)
			for i, want := range first {
				if leaders[i] != want {
					return fmt.Errorf("partition %d is led by %d, want %d", i, leaders[i], want)
				}
			}
			return nil
		})
	}
}
