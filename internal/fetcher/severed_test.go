package fetcher

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Behind a broken connection another history may wait under the same topic id and leader epoch: the logs are compared
// again before anything that was fetched over the next one is written, idle partitions included, as often as it happens.
func TestR7_AfterABrokenSourceConnectionTheLogsAreCompared(t *testing.T) {
	r := newRig(t, map[string]int32{"t": 6})
	r.write("t", 6, 0, 30)
	pool, stop := r.pool()
	pool.Reconcile(r.targets("t"))
	r.level("t", 6)
	var fetches, broken atomic.Int32 // of sessions; those with a number that is to be broken
	r.src.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		r.src.KeepControl()
		if f := req.(*kmsg.FetchRequest); f.SessionEpoch < 0 || len(f.Topics) == 0 && f.SessionID == 0 { // of a comparison, or of nobody
			return nil, nil, false
		}
		if fetches.Add(1) == broken.Load() {
			return nil, errors.New("connection broken by the test"), true
		}
		return nil, nil, false
	})
	for round := range maxLooks + 5 {
		before := r.compared.Load()
		broken.Store(fetches.Load() + 10) // some good ones first
		eventually(t, 20*time.Second, func() error {
			if n := r.compared.Load(); n == before {
				return fmt.Errorf("round %d: nothing was compared", round)
			}
			return nil
		})
	}
	r.write("t", 6, 30, 30)
	r.level("t", 6)
	r.same("t", 6)
	stop()
}
