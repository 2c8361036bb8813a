package mmm

import (
	"context"
	"fmt"
	"log/slog"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// cluster is the first step: the right cluster answers, and the choices that the definition leaves open are made. It
// reports whether the mirror may go on.
func (l *loop) cluster(ctx context.Context, seen observation) bool {
	defer l.settle(ctx, StepCluster)
	m, ok := l.deps.View.Mirror(l.name)
	if !ok {
		return false
	}
	verdict := judgeCluster(m, seen.clusterID, seen.destinationID)
	after := m
	after.LearntClusterID = verdict.learnt
	if verdict.Finding.Message != "" {
		after.Finding = verdict.Finding
	} else if m.Finding.Kind == mirror.Loop || m.Finding.Kind == mirror.SourceChanged {
		after.Finding = statestore.Finding{}
	}
	if after.Finding.Message != "" {
		l.speaker.say(ctx, slog.LevelError, "cluster", "mirror refused", after.Finding.Message, mirror.KeyCause, after.Finding.Message,
			mirror.KeyCluster, seen.clusterID)
	} else {
		l.speaker.over("cluster")
		l.modes(ctx, &after)
	}
	if !sameLearning(m, after) {
		if err := l.putMirror(ctx, m, after); err != nil {
			l.fail(StepCluster, err)
			return false
		}
		l.tellCluster(m, after)
	}
	return after.Finding.Message == ""
}

// modes makes the choices that are open.
func (l *loop) modes(ctx context.Context, m *statestore.Mirror) {
	var can capabilities
	if undecided(*m) {
		var err error
		can, err = within(ctx, l.cfg.CallTimeout, func(ctx context.Context) (capabilities, error) {
			return askCapabilities(ctx, l.deps.Destination)
		})
		if err != nil {
			l.fail(StepCluster, fmt.Errorf("decide the modes of the mirror: %w", err))
			return
		}
	}
	m.TransactionsMode, m.FillersMode = decideModes(*m, can)
	if can.untold != nil && m.Transactions == mirror.Auto {
		l.speaker.say(ctx, slog.LevelWarn, "modes", "transactions are not copied as they are", can.untold.Error(), mirror.KeyCause,
			"settings of the destination's brokers are not told", mirror.KeyErr, fmt.Errorf("destination: %w", can.untold))
	}
}

func sameLearning(a, b statestore.Mirror) bool {
	return a.LearntClusterID == b.LearntClusterID && a.Finding == b.Finding && a.TransactionsMode == b.TransactionsMode &&
		a.FillersMode == b.FillersMode
}

// putMirror writes what was learnt on top of the definition as it is now.
func (l *loop) putMirror(ctx context.Context, before, after statestore.Mirror) error {
	now, ok := l.deps.View.Mirror(l.name)
	if !ok || now.Version != before.Version {
		return nil // it was edited meanwhile: the next cycle looks at the new one
	}
	now.LearntClusterID, now.Finding = after.LearntClusterID, after.Finding
	now.TransactionsMode, now.FillersMode = after.TransactionsMode, after.FillersMode
	return l.put(ctx, now)
}

func (l *loop) tellCluster(before, after statestore.Mirror) {
	if after.Finding.Message != "" && after.Finding != before.Finding {
		l.deps.event(l.name, "", "mirror refused", after.Finding.Message)
	}
	if before.LearntClusterID != after.LearntClusterID {
		l.log.Info("source cluster learnt", mirror.KeyCluster, after.LearntClusterID)
	}
	if before.TransactionsMode != after.TransactionsMode || before.FillersMode != after.FillersMode {
		l.log.Info("modes decided", "transactions", after.TransactionsMode, "fillers", after.FillersMode)
	}
}

// same reports whether a topic that was just looked at is the one that is meant.
func (d destinationSeen) same(t statestore.Topic) bool {
	info, ok := d.topics[t.Name]
	return ok && info.err == nil && sameTopic(info.id, t.DestinationID)
}
