package daemon

import (
	"testing"

	"mirrord/internal/mirror"
)

// What was raised is not asked for again while brokers, and so the data path, have not heard of it.
func TestFencingTrustsWhatWasRaised(t *testing.T) {
	var f fenced
	at := mirror.Target{Partition: mirror.Partition{Mirror: "east"}, DestinationID: mirror.TopicID{1}}
	if !f.near(at, 2) {
		t.Error("nothing is known, and it is not near")
	}
	f.reached.Store(at.Partition, reach{at.DestinationID, 12})
	for source, near := range map[int32]bool{2: false, 9: false, 10: true} {
		if f.near(at, source) != near {
			t.Errorf("source at %d, destination at 12: near is %v", source, !near)
		}
	}
	at.DestinationID = mirror.TopicID{2}
	if !f.near(at, 2) {
		t.Error("another topic counts as raised")
	}
}
