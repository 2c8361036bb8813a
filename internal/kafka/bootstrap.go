package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"mirrord/internal/mirror"
)

// bootstrap chooses among the configured addresses for all clients of a cluster. Any of them is as good as any other,
// so the one that answered last comes first and those that failed come last: a dead or silent address costs its wait
// once, not once in every client.
//
// Clients are given names in place of the addresses, since brokers may be advertised by the same addresses: who asks
// for a broker must get that broker.
type bootstrap struct {
	addresses []string
	log       *slog.Logger

	mu     sync.Mutex // guards what follows
	good   string
	failed map[string]failure
}

// failure is the last one of an address.
type failure struct {
	at  time.Time
	err error
}

const bootstrapName = "bootstrap-server-"

func newBootstrap(addresses []string, log *slog.Logger) *bootstrap {
	return &bootstrap{addresses: slices.Clone(addresses), log: log, failed: map[string]failure{}}
}

// names are what clients call the addresses: as many, in no relation to them.
func (b *bootstrap) names() []string {
	names := make([]string, len(b.addresses))
	for i := range names {
		names[i] = fmt.Sprintf("%s%d:1", bootstrapName, i+1)
	}
	return names
}

func isBootstrapName(address string) bool { return strings.HasPrefix(address, bootstrapName) }

// order lists the addresses, the most promising first.
func (b *bootstrap) order() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	order := slices.Clone(b.addresses)
	slices.SortStableFunc(order, func(x, y string) int {
		if x == b.good || y == b.good {
			return map[bool]int{true: -1, false: 1}[x == b.good]
		}
		return b.failed[x].at.Compare(b.failed[y].at)
	})
	return order
}

// dial connects to the first address that lets itself be connected to.
func (b *bootstrap) dial(ctx context.Context, s *security, network string) (net.Conn, error) {
	var errs []error
	for _, address := range b.order() {
		conn, err := s.dialTelling(ctx, network, address, func(err error) { b.tell(address, err) })
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
		b.tell(address, err)
	}
	return nil, errors.Join(errs...)
}

// tell records whether an address answers.
func (b *bootstrap) tell(address string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, known := b.failed[address]
	if err == nil {
		b.good = address
		delete(b.failed, address)
		return
	}
	b.failed[address] = failure{time.Now(), err}
	if b.good == address {
		b.good = ""
	}
	if !known && len(b.addresses) > 1 {
		b.log.Warn("bootstrap server did not answer", "address", address, mirror.KeyErr, err)
	}
}
