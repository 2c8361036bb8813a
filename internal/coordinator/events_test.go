package coordinator

import (
	"testing"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

type fakeStates struct {
	loaded map[int32]bool
	all    []statestore.PartitionState
}

func (f *fakeStates) Shards() int32                                 { return 2 }
func (f *fakeStates) Loaded(shard int32) bool                       { return f.loaded[shard] }
func (f *fakeStates) Partitions(string) []statestore.PartitionState { return f.all }
func (f *fakeStates) set(i int, s mirror.State)                     { f.all[i].State = s; f.all[i].StateEpoch++ }

// What is read of a shard for the first time is no change. A shard that cannot be loaded keeps changes of the others
// from nobody.
func TestChangesAreToldWhileAShardIsNotLoaded(t *testing.T) {
	of := func(shard int32) statestore.PartitionState {
		p := mirror.Partition{Mirror: "east"}
		for mirror.ShardOf(p, 2) != shard {
			p.Index++
		}
		return statestore.PartitionState{Partition: p, State: mirror.Mirroring}
	}
	v := &fakeStates{loaded: map[int32]bool{}, all: []statestore.PartitionState{of(0), of(1)}}
	i := newIndex()
	i.mirrors["east"] = &mirrorEntry{}
	x := newSightings()
	update := func(want ...mirror.State) {
		t.Helper()
		events := x.update(v, i)
		if len(events) != len(want) {
			t.Fatalf("%d changes are told, want %d: %+v", len(events), len(want), events)
		}
		for k, e := range events {
			if e.To != want[k] {
				t.Errorf("change %d is to %v, want %v", k, e.To, want[k])
			}
		}
	}
	update()
	v.loaded[0] = true
	update()
	v.set(0, mirror.Failed)
	v.set(1, mirror.Stopping) // read of the past
	update(mirror.Failed)
	v.loaded[1] = true
	update()
	v.set(1, mirror.Stopped)
	update(mirror.Stopped)
}
