package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"mirrord/internal/mirror"
)

func TestDoor(t *testing.T) {
	b := newBench(t)
	i := b.start("one")
	i.owns(20*time.Second, all)
	i.mirrored("east", 2, "orders")
	read := i.c.ReadMirrorStates(t.Context(), mirror.ReadMirrorStatesRequest{MirrorName: "east", Topics: []mirror.ReadTopic{
		{Name: "orders", Partitions: []mirror.ReadPartition{{PartitionIndex: 0}, {PartitionIndex: 2}}},
		{Name: "absent", Partitions: []mirror.ReadPartition{{PartitionIndex: 0}}},
	}})
	if p := read.Topics[0].Partitions; p[0].State != mirror.Mirroring || p[0].ErrorCode != 0 || p[1].ErrorCode != 3 || read.Topics[1].Partitions[0].ErrorCode != 3 {
		t.Errorf("%+v", read)
	}
	nowhere := i.c.ReadMirrorStates(t.Context(), mirror.ReadMirrorStatesRequest{MirrorName: "nope", Topics: []mirror.ReadTopic{
		{Name: "orders", Partitions: []mirror.ReadPartition{{PartitionIndex: 0}}},
	}})
	if nowhere.ErrorCode != 3 || nowhere.ErrorMessage == nil || nowhere.Topics[0].Partitions[0].ErrorCode != 3 || read.ErrorCode != 0 {
		t.Errorf("of a mirror that does not exist: %+v", nowhere)
	}
	write := func(index int32, to mirror.State, epoch *int32) mirror.WritePartitionResult {
		resp := i.c.WriteMirrorStates(t.Context(), mirror.WriteMirrorStatesRequest{MirrorName: "east", Topics: []mirror.WriteTopic{
			{Name: "orders", Partitions: []mirror.WritePartition{{PartitionIndex: index, LastMirrorEpoch: -1, State: to, StateEpoch: epoch}}},
		}})
		return resp.Topics[0].Partitions[0]
	}
	old := int32(0)
	for _, c := range []struct {
		to    mirror.State
		epoch *int32
		index int32
		code  int16
	}{
		{mirror.Paused, nil, 0, mirror.CodeInvalidRequest},
		{mirror.State(99), nil, 0, mirror.CodeInvalidRequest},
		{mirror.Pausing, &old, 0, mirror.CodeFencedStateEpoch},
		{mirror.Pausing, nil, 7, mirror.CodeUnknownTopicOrPartition},
		{mirror.Pausing, nil, 0, mirror.CodeNone},
	} {
		if got := write(c.index, c.to, c.epoch); got.ErrorCode != c.code || c.code != 0 && got.ErrorMessage == "" {
			t.Errorf("%s: %+v, want code %d", c.to, got, c.code)
		}
	}
	if got := write(0, mirror.Paused, nil); got.ErrorCode == mirror.CodeInvalidRequest && !strings.Contains(got.ErrorMessage, "PAUSED") {
		t.Errorf("an illegal transition is not named: %q", got.ErrorMessage)
	}
	resp := i.c.WriteMirrorStates(t.Context(), mirror.WriteMirrorStatesRequest{MirrorName: "east", StoppedTopics: []string{"orders"}})
	if resp.ErrorCode != 0 {
		t.Errorf("%+v", resp)
	}
	i.reach("east", 2, mirror.Stopped, "orders")
}

func TestDoorNamesTheCoordinator(t *testing.T) {
	b := newBench(t)
	one := b.start("one")
	one.owns(20*time.Second, all)
	one.mirrored("east", 12, "orders")
	two := b.start("two")
	some := func(n int) bool { return n > 0 && n < testShards }
	two.owns(20*time.Second, some)
	one.owns(20*time.Second, some)
	b.eventually(10*time.Second, func() string {
		codes := map[int16]string{}
		for p := range int32(12) {
			resp := one.c.WriteMirrorStates(t.Context(), mirror.WriteMirrorStatesRequest{MirrorName: "east", Topics: []mirror.WriteTopic{
				{Name: "orders", Partitions: []mirror.WritePartition{{PartitionIndex: p, LastMirrorEpoch: -1, State: mirror.Mirroring}}},
			}})
			r := resp.Topics[0].Partitions[0]
			codes[r.ErrorCode] = r.ErrorMessage
		}
		if _, ok := codes[mirror.CodeNone]; !ok || !strings.Contains(codes[mirror.CodeNotCoordinator], "two at two:9464") {
			return fmt.Sprintf("%v", codes)
		}
		return ""
	})
}
