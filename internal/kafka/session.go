package kafka

import (
	"context"
	"fmt"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// FetchSession is a fetch session (KIP-227) on one connection: after a first, full request only what changed goes over
// the wire, so that idle partitions cost nothing. It belongs to one goroutine, has one request in flight at a time, and
// heals by itself: where the broker gives or keeps no session, the next request is full again.
type FetchSession struct {
	conn *Conn
	cfg  FetchConfig

	id, epoch int32 // id 0: no session; epoch 0: the next request is full
	parts     map[fetchKey]*fetchEntry
	changed   map[fetchKey]struct{}  // to be named in the next incremental request
	forgotten map[fetchKey]fetchName // the broker still holds them
	nameless  int                    // entries without a topic id
	byID      bool                   // form of the established session
	names     map[mirror.TopicID]string
	uses      map[mirror.TopicID]int // entries of a topic id
}

type fetchKey struct {
	topic     string
	partition int32
}

type fetchName struct {
	topic string
	id    mirror.TopicID
}

type fetchEntry struct {
	FetchPartition
	held bool // the broker's session has it
}

// NewFetchSession begins without partitions and sends nothing.
func NewFetchSession(conn *Conn, cfg FetchConfig) *FetchSession {
	return &FetchSession{
		conn: conn, cfg: cfg, parts: map[fetchKey]*fetchEntry{}, changed: map[fetchKey]struct{}{},
		forgotten: map[fetchKey]fetchName{}, names: map[mirror.TopicID]string{}, uses: map[mirror.TopicID]int{},
	}
}

// Len is the number of partitions in the session.
func (s *FetchSession) Len() int { return len(s.parts) }

// Established reports whether the broker keeps the session.
func (s *FetchSession) Established() bool { return s.epoch > 0 }

// Configure changes what later requests ask for all partitions.
func (s *FetchSession) Configure(cfg FetchConfig) { s.cfg = cfg }

// Update adds a partition or changes what is asked of it.
func (s *FetchSession) Update(p FetchPartition) {
	key := fetchKey{p.Topic, p.Partition}
	e := s.parts[key]
	if e != nil && e.FetchPartition == p {
		return
	}
	if e != nil && e.TopicID != p.TopicID { // recreated, or given an id: another partition to the broker
		s.Forget(p.Topic, p.Partition)
		e = nil
	}
	if e == nil {
		e = &fetchEntry{held: s.recall(key, p.TopicID)}
		s.parts[key] = e
		s.count(p.TopicID, p.Topic, 1)
	}
	e.FetchPartition = p
	s.changed[key] = struct{}{}
}

// recall takes back that a partition is to be forgotten: brokers forget last, even what the same request names.
func (s *FetchSession) recall(key fetchKey, id mirror.TopicID) bool {
	name, ok := s.forgotten[key]
	if !ok || s.byID && name.id != id {
		return false
	}
	delete(s.forgotten, key)
	return true
}

// Forget takes a partition out.
func (s *FetchSession) Forget(topic string, partition int32) {
	key := fetchKey{topic, partition}
	e := s.parts[key]
	if e == nil {
		return
	}
	if e.held {
		if _, twice := s.forgotten[key]; twice { // under another id before: the list names a partition once
			s.restart()
		}
		s.forgotten[key] = fetchName{topic, e.TopicID}
	}
	delete(s.parts, key)
	delete(s.changed, key)
	s.count(e.TopicID, topic, -1)
}

func (s *FetchSession) count(id mirror.TopicID, topic string, by int) {
	if id.IsZero() {
		s.nameless += by
		return
	}
	s.uses[id] += by
	s.names[id] = topic
	if s.uses[id] == 0 {
		delete(s.uses, id)
		delete(s.names, id)
	}
}

// restart makes the next request full; the broker closes a session that it still keeps.
func (s *FetchSession) restart() { s.epoch = 0 }

// Send builds the next request and sends it.
func (s *FetchSession) Send() *Call { return s.conn.Send(s.Build()) }

// Build is the next request. Its answer, or its failure, must be given to Handle before the next one is built.
func (s *FetchSession) Build() *kmsg.FetchRequest {
	byID := s.nameless == 0 && s.conn.MaxVersion(kmsg.Fetch.Int16()) >= fetchByID
	if byID != s.byID {
		s.restart()
		s.byID = byID
	}
	req := newFetchRequest(s.cfg)
	req.Version = fetchByName
	if byID {
		req.Version = req.MaxVersion()
	}
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	topics := map[fetchName]int{}
	if s.epoch == 0 {
		clear(s.forgotten)
		for _, e := range s.parts {
			addFetch(req, topics, e)
		}
	} else {
		for key := range s.changed {
			addFetch(req, topics, s.parts[key])
		}
		s.addForgotten(req)
	}
	clear(s.changed)
	return req
}

func addFetch(req *kmsg.FetchRequest, topics map[fetchName]int, e *fetchEntry) {
	e.held = true
	name := fetchName{e.Topic, e.TopicID}
	i, ok := topics[name]
	if !ok {
		i = len(req.Topics)
		topics[name] = i
		t := kmsg.NewFetchRequestTopic()
		t.Topic, t.TopicID = e.Topic, e.TopicID
		req.Topics = append(req.Topics, t)
	}
	req.Topics[i].Partitions = append(req.Topics[i].Partitions, fetchPartition(&e.FetchPartition))
}

func (s *FetchSession) addForgotten(req *kmsg.FetchRequest) {
	topics := map[fetchName]int{}
	for key, name := range s.forgotten {
		i, ok := topics[name]
		if !ok {
			i = len(req.ForgottenTopics)
			topics[name] = i
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID = name.topic, name.id
			req.ForgottenTopics = append(req.ForgottenTopics, t)
		}
		req.ForgottenTopics[i].Partitions = append(req.ForgottenTopics[i].Partitions, key.partition)
	}
	clear(s.forgotten)
}

// Handle waits for a call of Send and returns the partitions that the broker has something to say about. An error is
// about the whole request: SessionLost ones need nothing but the next Send. The caller still releases the call.
func (s *FetchSession) Handle(call *Call) ([]FetchedPartition, error) {
	answer, err := call.Response()
	if err != nil {
		s.id, s.epoch = 0, 0
		return nil, err
	}
	resp := answer.(*kmsg.FetchResponse)
	if err := kafkaError(resp.ErrorCode, nil); err != nil {
		if !SessionLost(err) || resp.ErrorCode == sessionNotFound {
			s.id = 0
		}
		s.epoch = 0
		return nil, fmt.Errorf("fetch: %w", err)
	}
	s.advance(resp.SessionID)
	return s.results(resp), nil
}

const sessionNotFound = 70 // FETCH_SESSION_ID_NOT_FOUND: there is nothing to close

func (s *FetchSession) advance(id int32) {
	switch {
	case id == 0: // the broker has no room for another session: ask in full, and again for one
		s.id, s.epoch = 0, 0
	case s.epoch == 0 || id == s.id:
		s.id = id
		s.epoch = s.epoch%math.MaxInt32 + 1
	default: // an answer of another session
		s.epoch = 0
	}
}

func (s *FetchSession) results(resp *kmsg.FetchResponse) []FetchedPartition {
	n := 0
	for i := range resp.Topics {
		n += len(resp.Topics[i].Partitions)
	}
	results := make([]FetchedPartition, 0, n)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		name := t.Topic
		if resp.Version >= fetchByID {
			name = s.names[t.TopicID]
		}
		for j := range t.Partitions {
			e := s.parts[fetchKey{name, t.Partitions[j].Partition}]
			if e == nil { // forgotten since it was asked
				continue
			}
			f := fetched(&t.Partitions[j])
			f.Topic, f.TopicID = e.Topic, e.TopicID
			results = append(results, f)
		}
	}
	return results
}

// Close gives the session back to the broker, which keeps few. The connection stays.
func (s *FetchSession) Close(ctx context.Context) {
	if s.id == 0 || s.conn.Err() != nil {
		return
	}
	req := newFetchRequest(FetchConfig{})
	req.SessionID, req.SessionEpoch = s.id, -1
	s.id, s.epoch = 0, 0
	call := s.conn.Send(req)
	defer call.Release()
	_, _ = call.Wait(ctx) // a broker that is gone keeps no session
}
