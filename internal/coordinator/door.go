package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// ReadMirrorStates answers from the view of this instance, which follows all shards: any instance may be asked.
func (c *Coordinator) ReadMirrorStates(_ context.Context, req mirror.ReadMirrorStatesRequest) (resp mirror.ReadMirrorStatesResponse) {
	if n := c.view.Shards(); n > 0 && c.view.Loaded(mirror.ShardOfMirror(req.MirrorName, n)) {
		if _, ok := c.view.Mirror(req.MirrorName); !ok {
			message := fmt.Sprintf("there is no mirror %q", req.MirrorName)
			resp.ErrorCode, resp.ErrorMessage = mirror.CodeUnknownTopicOrPartition, &message
		}
	}
	for _, t := range req.Topics {
		result := mirror.ReadTopicResult{Name: t.Name}
		for _, p := range t.Partitions {
			result.Partitions = append(result.Partitions, c.readState(req.MirrorName, t.Name, p.PartitionIndex))
		}
		resp.Topics = append(resp.Topics, result)
	}
	return resp
}

func (c *Coordinator) readState(mirrorName, topic string, index int32) mirror.ReadPartitionResult {
	r := mirror.ReadPartitionResult{PartitionIndex: index, LastMirrorEpoch: -1, State: mirror.Unknown, PreviousState: mirror.NotRecorded}
	p, code, message := locatePartition(c.view, mirrorName, topic, index)
	if code != mirror.CodeNone {
		r.ErrorCode, r.ErrorMessage = code, message
		return r
	}
	if at, ok := c.view.LastMirror(p); ok {
		r.LastMirrorEpoch = at.LeaderEpoch
	}
	if s, ok := c.view.Partition(p); ok {
		r.State, r.PreviousState, r.RetryAttempt, r.StateEpoch = s.State, s.Previous, s.RetryAttempt, s.StateEpoch
	}
	return r
}

// locatePartition finds a partition by its topic's name, and says why there is none.
func locatePartition(v *statestore.View, mirrorName, topic string, index int32) (p mirror.Partition, code int16, message string) {
	shards := v.Shards()
	if shards == 0 || !v.Loaded(mirror.ShardOfMirror(mirrorName, shards)) {
		return p, mirror.CodeLoadInProgress, "the state topic is still being loaded"
	}
	t, ok := v.Topic(mirrorName, topic)
	if !ok {
		return p, mirror.CodeUnknownTopicOrPartition, fmt.Sprintf("topic %s is not in mirror %s", topic, mirrorName)
	}
	p = mirror.Partition{Mirror: mirrorName, TopicID: t.SourceID, Index: index}
	if index < 0 || index >= t.Partitions {
		return p, mirror.CodeUnknownTopicOrPartition, fmt.Sprintf("topic %s has %s", topic, mirror.Count(t.Partitions, "partition"))
	}
	if !v.Loaded(mirror.ShardOf(p, shards)) {
		return p, mirror.CodeLoadInProgress, "the shard is still being loaded"
	}
	return p, mirror.CodeNone, ""
}

// WriteMirrorStates proposes states, and is answered once they are recorded or refused. Each partition is answered by its
// own coordinator only; a state is taken if the transition is legal (mirror.CanEnter) and, where a state epoch is sent,
// if that is the present one. Only FAILED may be entered out of turn in process, with its cause in Err.
func (c *Coordinator) WriteMirrorStates(ctx context.Context, req mirror.WriteMirrorStatesRequest) mirror.WriteMirrorStatesResponse {
	w := &writing{left: 1, done: make(chan struct{})}
	resp := &w.resp
	posted := c.post(func(r *runner) {
		for _, t := range req.Topics {
			resp.Topics = append(resp.Topics, mirror.WriteTopicResult{Name: t.Name, Partitions: make([]mirror.WritePartitionResult, len(t.Partitions))})
			results := resp.Topics[len(resp.Topics)-1].Partitions
			for i, p := range t.Partitions {
				w.expect()
				results[i].PartitionIndex = p.PartitionIndex
				r.writeState(req.MirrorName, t.Name, p, w.answer(&results[i]))
			}
		}
		if len(req.StoppedTopics) > 0 {
			w.expect()
			r.stopTopics(req.MirrorName, req.StoppedTopics, w)
		}
		w.finish()
	})
	if !posted {
		return refusedWrite(req, mirror.CodeNotCoordinator, "this instance is ending")
	}
	select {
	case <-w.done:
		return w.resp
	case <-ctx.Done():
		return refusedWrite(req, mirror.CodeLoadInProgress, "not answered in time: ask for the state")
	}
}

// writing gathers the answers to one request. Answers come from the event loop.
type writing struct {
	resp mirror.WriteMirrorStatesResponse
	mu   sync.Mutex
	left int
	done chan struct{}
}

func (w *writing) expect() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left++
}

func (w *writing) finish() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left--; w.left == 0 {
		close(w.done)
	}
}

func (w *writing) answer(into *mirror.WritePartitionResult) func(int16, string, int32) {
	return func(code int16, message string, stateEpoch int32) {
		into.ErrorCode, into.ErrorMessage, into.StateEpoch = code, message, stateEpoch
		w.finish()
	}
}

func refusedWrite(req mirror.WriteMirrorStatesRequest, code int16, message string) (resp mirror.WriteMirrorStatesResponse) {
	for _, t := range req.Topics {
		result := mirror.WriteTopicResult{Name: t.Name}
		for _, p := range t.Partitions {
			result.Partitions = append(result.Partitions, mirror.WritePartitionResult{
				PartitionIndex: p.PartitionIndex,
				ErrorCode:      code, ErrorMessage: message,
			})
		}
		resp.Topics = append(resp.Topics, result)
	}
	if len(req.Topics) == 0 {
		resp.ErrorCode, resp.ErrorMessage = code, &message
	}
	return resp
}

// writeState takes one proposal, or answers why not.
func (r *runner) writeState(mirrorName, topic string, w mirror.WritePartition, answer func(int16, string, int32)) {
	p, code, message := locatePartition(r.view, mirrorName, topic, w.PartitionIndex)
	if code != mirror.CodeNone {
		answer(code, message, -1)
		return
	}
	s := r.shards[mirror.ShardOf(p, r.view.Shards())]
	if s == nil || s.phase == releasing {
		answer(mirror.CodeNotCoordinator, notCoordinator(r.view, p), -1)
		return
	}
	t := s.parts[p]
	if s.phase != driving || t == nil || t.proposal != nil {
		answer(mirror.CodeLoadInProgress, "the coordinator is busy with this partition: try again", -1)
		return
	}
	if w.StateEpoch != nil && *w.StateEpoch != t.epoch {
		answer(mirror.CodeFencedStateEpoch, fmt.Sprintf("state epoch %d was sent, the present one is %d", *w.StateEpoch, t.epoch), t.epoch)
		return
	}
	if w.State == mirror.Failed && w.Err != nil {
		r.metrics.failed(mirror.KindOf(w.Err))
	}
	t.proposal = &proposal{to: w.State, err: w.Err, done: answer}
	if w.LastMirrorEpoch >= 0 && (w.State == mirror.Stopping || w.State == mirror.Stopped) {
		t.proposal.position = &mirror.Position{LeaderEpoch: w.LastMirrorEpoch, Offset: -1}
		if w.LastMirrorOffset != nil {
			t.proposal.position.Offset = *w.LastMirrorOffset
		}
	}
}

func notCoordinator(v *statestore.View, p mirror.Partition) string {
	claim, ok := v.ClaimOf(p)
	switch {
	case !ok || claim.Released:
		return "no instance coordinates this partition now"
	case claim.HTTP == "":
		return "the coordinator of this partition is " + claim.Owner
	}
	return "the coordinator of this partition is " + claim.Owner + " at " + claim.HTTP
}

// stopTopics sets the wish of topics to STOPPED.
func (r *runner) stopTopics(mirrorName string, topics []string, w *writing) {
	r.put(mirrorName, &item{
		prepare: func() (records []statestore.Record, err error) {
			for _, name := range topics {
				t, ok := r.view.Topic(mirrorName, name)
				if !ok {
					return nil, mirror.Errorf(mirror.Refused, "topic %s is not in mirror %s", name, mirrorName)
				}
				if t.Recreating {
					return nil, mirror.Errorf(mirror.Retriable, "topic %s is being recreated: try again", name)
				}
				if t.Wish != mirror.Stopped {
					t = commanded(t)
					t.Wish, t.Promoted = mirror.Stopped, false
					records = append(records, t)
				}
			}
			return records, nil
		},
		done: func(err error) {
			if err != nil {
				message := err.Error()
				w.resp.ErrorCode, w.resp.ErrorMessage = mirror.CodeNotCoordinator, &message
				if mirror.KindOf(err) == mirror.Refused {
					w.resp.ErrorCode = mirror.CodeUnknownTopicOrPartition
				}
			}
			w.finish()
		},
	})
}

// illegal says why a transition is not allowed; empty: it is.
func illegal(from, to mirror.State) string {
	if !slices.Contains(mirror.States(), to) || to == mirror.Unknown {
		return fmt.Sprintf("%d is no state that can be entered", int8(to))
	}
	if mirror.CanEnter(from, to) {
		return ""
	}
	var sources []string
	for _, s := range mirror.EnterableFrom(to) {
		sources = append(sources, s.String())
	}
	return fmt.Sprintf("illegal transition %s → %s: %s is entered from %v", from, to, to, sources)
}
