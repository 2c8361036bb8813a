package kafka

import (
	"context"
)

// ResumePoint is where writing to a partition can go on (protocol R3). All of it comes from one broker, over one
// connection, and the producers were read before the log's end: a batch that arrives in between is in the log end, and
// at worst missing among the producers, which is noticed, never the other way round.
type ResumePoint struct {
	Broker, LeaderEpoch int32
	Producers           []Producer
	LogStart, LogEnd    int64
	HighWatermark       int64 // −1: the leader does not know it yet
	Err                 error
}

// Producer finds a producer id.
func (r ResumePoint) Producer(id int64) (Producer, bool) {
	for _, p := range r.Producers {
		if p.ID == id {
			return p, true
		}
	}
	return Producer{}, false
}

// Resume reads resume points from the leaders that metadata names now. Topic ids are checked against it.
func (c *Cluster) Resume(ctx context.Context, tps []TP) map[TP]ResumePoint {
	return askLeaders(ctx, c, tps, ledRequest[ResumePoint]{
		chunk:   producersChunk,
		fresh:   true,
		fail:    failedResume,
		failure: func(r ResumePoint) error { return r.Err },
		ask:     c.askResume,
	})
}

func failedResume(err error) ResumePoint {
	return ResumePoint{Broker: -1, LeaderEpoch: -1, LogStart: -1, LogEnd: -1, HighWatermark: -1, Err: err}
}

func (c *Cluster) askResume(ctx context.Context, broker int32, tps []located, out func(TP, ResumePoint)) {
	answers, err := c.look(ctx, laneKey{broker, laneLook},
		describeProducers(tps),
		listOffsets(tps, debugReplica, latestOffset, ReadUncommitted),
		listOffsets(tps, debugReplica, earliestOffset, ReadUncommitted),
		listOffsets(tps, consumerReplica, latestOffset, ReadUncommitted))
	points := make(map[TP]*ResumePoint, len(tps))
	for _, tp := range tps {
		p := failedResume(ErrMissing)
		p.Broker, p.LeaderEpoch = broker, tp.epoch
		points[tp.TP] = &p
	}
	readProducers(tps, answers, err, func(tp TP, r ProducersResult) { points[tp].Producers, points[tp].Err = r.Producers, r.Err })
	for i, set := range []func(*ResumePoint, int64){
		func(p *ResumePoint, o int64) { p.LogEnd = o },
		func(p *ResumePoint, o int64) { p.LogStart = o },
		func(p *ResumePoint, o int64) { p.HighWatermark = o },
	} {
		readOffsets(tps, answers, i+1, err, func(tp TP, r OffsetResult) {
			set(points[tp], r.Offset)
			if points[tp].Err == nil && !OffsetNotAvailable(r.Err) {
				points[tp].Err = r.Err
			}
		})
	}
	for tp, p := range points {
		if p.Err == nil && (p.LogEnd < 0 || p.LogStart < 0) {
			p.Err = ErrMissing
		}
		out(tp, *p)
	}
}
