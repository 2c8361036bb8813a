package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// transactional is a producer of the older or the newer (KIP-890) transaction protocol.
func (t *teller) transactional(r *rand.Rand, id string) (*kgo.Client, error) {
	versions := kversion.Stable()
	if r.IntN(2) == 0 {
		versions.SetMaxKeyVersion(0, 11)
		versions.SetMaxKeyVersion(26, 3)
	}
	return t.producer(r, kgo.TransactionalID(fmt.Sprint(t.topic, "-", id)), kgo.TransactionTimeout(10*time.Minute), kgo.MaxVersions(versions))
}

// transactions runs up to three at a time among plain records, record by record in random order.
func (t *teller) transactions(r *rand.Rand) error {
	writers := make([]*kgo.Client, 1+r.IntN(3))
	for i := range writers {
		var err error
		if writers[i], err = t.transactional(r, fmt.Sprint("x", i, r.IntN(3))); err != nil {
			return err
		}
		defer writers[i].Close()
	}
	plain, err := t.producer(r)
	if err != nil {
		return err
	}
	defer plain.Close()
	for range 1 + r.IntN(4) {
		if err := t.round(r, writers, plain); err != nil {
			return err
		}
	}
	return nil
}

func (t *teller) round(r *rand.Rand, writers []*kgo.Client, plain *kgo.Client) error {
	for _, w := range writers {
		if err := w.BeginTransaction(); err != nil {
			return err
		}
	}
	for range 2 + r.IntN(15) {
		cl := plain
		if i := r.IntN(len(writers) + 1); i < len(writers) {
			cl = writers[i]
		}
		if err := send(cl, t.records(r, 1+r.IntN(pick(r, 1, 1, 30)))...); err != nil {
			return err
		}
	}
	for _, w := range writers {
		if err := end(w, r.IntN(5) < 3); err != nil {
			return err
		}
	}
	return nil
}

func end(cl *kgo.Client, commit bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
}

func (t *teller) smallTransactions(r *rand.Rand) error {
	cl, err := t.transactional(r, "small")
	if err != nil {
		return err
	}
	defer cl.Close()
	for range 20 + r.IntN(80) {
		err := errors.Join(cl.BeginTransaction(), send(cl, t.records(r, 1)...), end(cl, r.IntN(4) > 0))
		if err != nil {
			return err
		}
	}
	return nil
}

// leaveOpen begins a transaction that a later act ends, or the end of the story.
func (t *teller) leaveOpen(r *rand.Rand) error {
	cl, err := t.transactional(r, fmt.Sprint("open", r.Int64()))
	if err != nil {
		return err
	}
	if err := errors.Join(cl.BeginTransaction(), send(cl, t.records(r, 1+r.IntN(10))...)); err != nil {
		return err
	}
	t.open = append(t.open, cl)
	return nil
}

// close ends one of the transactions that were left open.
func (t *teller) close(r *rand.Rand) error {
	if len(t.open) == 0 {
		return nil
	}
	cl := t.open[0]
	t.open = t.open[1:]
	return errors.Join(send(cl, t.records(r, r.IntN(3))...), end(cl, r.IntN(2) == 0))
}

// fence begins a transaction and has another client of the same id abort it, which then goes on itself.
func (t *teller) fence(r *rand.Rand) error {
	id := fmt.Sprint("fence", r.Int64())
	old, err := t.transactional(r, id)
	if err != nil {
		return err
	}
	defer old.Close()
	if err := errors.Join(old.BeginTransaction(), send(old, t.records(r, 1+r.IntN(5))...)); err != nil {
		return err
	}
	next, err := t.transactional(r, id)
	if err != nil {
		return err
	}
	defer next.Close()
	return errors.Join(next.BeginTransaction(), send(next, t.records(r, 1+r.IntN(5))...), end(next, r.IntN(3) > 0))
}

// closeAll ends all transactions and clients.
func (t *teller) closeAll(r *rand.Rand) (err error) {
	for len(t.open) > 0 {
		err = errors.Join(err, t.close(r))
	}
	return err
}

func (t *teller) end() {
	for _, cl := range t.made {
		cl.Close()
	}
}
