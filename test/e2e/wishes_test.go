package e2e

import (
	"fmt"
	"testing"
	"time"
)

// A command is executed by the one owner of the mirror's shard, and obeyed by the owners of the partitions, who learn of
// it from the state topic alone: neither instance is ever given the other's address.
func TestR18_OwnersObeyWishesOfAnotherInstance(t *testing.T) {
	t.Parallel()
	p := SharedPair(t)
	p.S.Topic(t, "t", 12)
	one, two := NewDaemon(t, p.Mirror("t")), NewDaemon(t, p.Mirror("t"))
	one.Start()
	two.Start()
	Eventually(t, 30*time.Second, func() error {
		owners := map[string]int{}
		for _, part := range one.Describe() {
			owners[part.Owner]++
		}
		if len(owners) != 2 || owners[""] > 0 {
			return fmt.Errorf("partitions by owner: %v, want two owners", owners)
		}
		return nil
	})
	for _, wish := range []struct{ verb, state string }{{"pause", "PAUSED"}, {"resume", "MIRRORING"}, {"stop", "STOPPED"}} {
		one.Do(wish.verb, "--mirror", "east", "--topics", "t")
		one.Await(wish.state, 10*time.Second, "t")
	}
}
