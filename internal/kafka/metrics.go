package kafka

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// tolerant registers client metrics for as long as the client lives. Of two clients with the same labels (one being
// replaced by the other) the later one stays unseen instead of ending the process.
type tolerant struct{ prometheus.Registerer }

// MustRegister panics for programming errors only.
func (t tolerant) MustRegister(collectors ...prometheus.Collector) {
	for _, c := range collectors {
		if err := t.Register(c); err != nil {
			if _, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); !ok {
				panic(err)
			}
		}
	}
}
