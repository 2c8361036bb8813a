package promote

import (
	"context"
	"errors"
	"maps"
	"slices"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// round is one set of changes: the steps of partitions by their kind.
type round struct {
	*ascent
	moving []int // the targets
	steps  map[how]map[kafka.TopicPartition]step
}

func (r *round) add(i int, s step) {
	tp := name(r.targets[i])
	if r.steps[s.how] == nil {
		r.steps[s.how] = map[kafka.TopicPartition]step{}
	}
	r.steps[s.how][tp] = s
	r.moving = append(r.moving, i)
	delete(r.causes, tp)
	if s.with != nil {
		r.tried[tp] = s
	}
}

// send sends the changes and returns the targets whose outcome is to be seen.
func (r *round) send(ctx context.Context) []int {
	for _, do := range []func(context.Context) error{r.undo, r.addReplicas, r.elect} {
		if err := do(ctx); err != nil {
			r.doubt(err)
			break
		}
	}
	return slices.DeleteFunc(r.moving, func(i int) bool {
		err := r.causes[name(r.targets[i])]
		final := kafka.Authorization(err) || mirror.KindOf(err) == mirror.Fenced
		if final {
			r.refuse([]int{i}, err)
		}
		return final
	})
}

// doubt is for an error of a connection: what was sent may have happened or not, which the next round finds out. What it
// needs for putting things right is remembered.
func (r *round) doubt(err error) {
	for _, i := range r.moving {
		r.causes[name(r.targets[i])] = err
	}
}

// undo ends additions of our own that were left half way, which raises the leader epoch, too.
func (r *round) undo(ctx context.Context) error {
	if tps := slices.Collect(maps.Keys(r.steps[byUndoing])); len(tps) > 0 {
		r.accept(tps, r.cluster.CancelReassignments(ctx, tps))
	}
	r.restore(ctx, slices.Collect(maps.Keys(r.steps[byRestoring])), r.steps[byRestoring])
	return nil
}

// restore takes replicas away that were added for good.
func (r *round) restore(ctx context.Context, of []kafka.TopicPartition, steps map[kafka.TopicPartition]step) {
	back := map[kafka.TopicPartition][]int32{}
	for _, tp := range of {
		back[tp] = steps[tp].back
	}
	if len(back) > 0 {
		r.accept(of, r.cluster.Reassign(ctx, back))
	}
}

// addReplicas adds and cancels as often as each partition needs it.
func (r *round) addReplicas(ctx context.Context) error {
	steps := r.steps[byReplica]
	for {
		with := map[kafka.TopicPartition][]int32{}
		for _, i := range r.moving {
			tp := name(r.targets[i])
			if s, ok := steps[tp]; ok && r.causes[tp] == nil && r.accepted[tp] < r.want[i] {
				with[tp] = s.with
			}
		}
		if len(with) == 0 {
			return nil
		}
		failed, err := r.cluster.AddThenCancel(ctx, with)
		if err != nil {
			return err
		}
		r.accept(slices.Collect(maps.Keys(with)), failed)
		r.restore(ctx, completed(failed), steps)
	}
}

func completed(failed map[kafka.TopicPartition]error) (tps []kafka.TopicPartition) {
	for tp, err := range failed {
		if errors.Is(err, kafka.ErrCompleted) {
			tps = append(tps, tp)
		}
	}
	return tps
}

func (r *round) elect(ctx context.Context) error {
	tps := slices.Collect(maps.Keys(r.steps[byElection]))
	for chunk := range slices.Chunk(tps, kafka.PlacementsPerTurn) {
		elections := map[kafka.TopicPartition]step{}
		for _, tp := range chunk {
			elections[tp] = r.steps[byElection][tp]
		}
		failed, err := r.cluster.PlaceInTurn(ctx, turns(elections))
		if err != nil {
			return err
		}
		r.accept(chunk, failed)
	}
	return nil
}

// accept counts one step up for each partition of which the controller has accepted all, and notes why not otherwise.
func (r *round) accept(of []kafka.TopicPartition, failed map[kafka.TopicPartition]error) {
	for _, tp := range of {
		if err := failed[tp]; err != nil {
			r.causes[tp] = err
			continue
		}
		delete(r.causes, tp)
		r.accepted[tp]++
	}
}
