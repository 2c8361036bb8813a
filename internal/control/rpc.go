package control

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"mirrord/internal/mirror"
	"mirrord/internal/statestore"
)

// maxBody bounds a request: 50,000 partitions with their names fit.
const maxBody = 8 << 20

// decode reads one JSON value and nothing after it. A field that nobody knows is refused: each one left out would change
// what is asked. False: the answer was sent.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		code := http.StatusBadRequest
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			code = http.StatusRequestEntityTooLarge
		}
		writeError(w, code, fmt.Errorf("read request: %w", err))
		return false
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err = decoder.Decode(into); err == nil {
		if _, more := decoder.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("something follows the JSON value")
		}
	}
	if err != nil {
		writeError(w, http.StatusBadRequest, fmt.Errorf("read request: %w", err))
		return false
	}
	return true
}

// named reports whether a request names a mirror. False: the answer was sent.
func named(w http.ResponseWriter, mirrorName string) bool {
	if mirrorName == "" {
		writeError(w, http.StatusBadRequest, errors.New("MirrorName is missing"))
	}
	return mirrorName != ""
}

func (s *Server) readStates(w http.ResponseWriter, r *http.Request) {
	var req mirror.ReadMirrorStatesRequest
	if decode(w, r, &req) && named(w, req.MirrorName) {
		writeJSON(w, http.StatusOK, s.deps.Read(r.Context(), req))
	}
}

// writeRequest is a WriteMirrorStatesRequest in which a missing State is told from state 0.
type writeRequest struct {
	MirrorName string
	Topics     []struct {
		Name       string
		Partitions []struct {
			PartitionIndex  int32
			LastMirrorEpoch *int32
			State           *mirror.State
			StateEpoch      *int32
		}
	}
	StoppedTopics []string
}

func (s *Server) writeStates(w http.ResponseWriter, r *http.Request) {
	var body writeRequest
	if !decode(w, r, &body) {
		return
	}
	req := mirror.WriteMirrorStatesRequest{MirrorName: body.MirrorName, StoppedTopics: body.StoppedTopics}
	for _, t := range body.Topics {
		topic := mirror.WriteTopic{Name: t.Name}
		for _, p := range t.Partitions {
			if p.State == nil {
				writeError(w, http.StatusBadRequest, fmt.Errorf("%s-%d: State is missing", t.Name, p.PartitionIndex))
				return
			}
			epoch := int32(-1)
			if p.LastMirrorEpoch != nil {
				epoch = *p.LastMirrorEpoch
			}
			topic.Partitions = append(topic.Partitions, mirror.WritePartition{
				PartitionIndex:  p.PartitionIndex,
				LastMirrorEpoch: epoch, State: *p.State, StateEpoch: p.StateEpoch,
			})
		}
		req.Topics = append(req.Topics, topic)
	}
	if named(w, req.MirrorName) {
		writeJSON(w, http.StatusOK, s.deps.Write(r.Context(), req))
	}
}

// commandRequest is what the console asks for. Topics are names or RE2 expressions, as on the command line.
type commandRequest struct {
	Verb   mirror.Verb `json:"verb"`
	Mirror string      `json:"mirror"`
	Topics []string    `json:"topics"`
	Drain  bool        `json:"drain"`
	DryRun bool        `json:"dryRun"`
}

// topicVerbs are the verbs that the API takes. Defining and deleting mirrors is the command line's.
var topicVerbs = []mirror.Verb{mirror.VerbStart, mirror.VerbStop, mirror.VerbPause, mirror.VerbResume, mirror.VerbRecover}

// command submits a command and answers with its id, or with what it would touch.
func (s *Server) command(w http.ResponseWriter, r *http.Request) {
	var req commandRequest
	if !decode(w, r, &req) {
		return
	}
	v := s.deps.View()
	if v == nil {
		writeError(w, http.StatusServiceUnavailable, errNoView)
		return
	}
	patterns, err := req.check(v)
	if err != nil {
		writeError(w, statusOf(err), err)
		return
	}
	if req.DryRun {
		writeJSON(w, http.StatusOK, dryRunOf(v, req.Mirror, patterns))
		return
	}
	cmd := mirror.Command{
		ID: statestore.NewCommandID(), AtMillis: time.Now().UnixMilli(), Verb: req.Verb, Mirror: req.Mirror,
		Topics: req.Topics, Drain: req.Drain,
	}
	if err := s.deps.Submit(r.Context(), cmd); err != nil {
		writeError(w, http.StatusServiceUnavailable, err)
		return
	}
	writeJSON(w, http.StatusAccepted, map[string]string{"id": hex.EncodeToString(cmd.ID[:])})
}

func (c commandRequest) check(v *statestore.View) (mirror.Patterns, error) {
	if !slices.Contains(topicVerbs, c.Verb) {
		return nil, badRequestError{fmt.Errorf("verb %q is not one of %v", c.Verb, topicVerbs)}
	}
	if _, ok := v.Mirror(c.Mirror); !ok {
		return nil, notFoundError{fmt.Errorf("no mirror %q", c.Mirror)}
	}
	if len(c.Topics) == 0 {
		return nil, badRequestError{errors.New("topics must name at least one topic")}
	}
	patterns, errs := mirror.ParsePatterns(c.Topics)
	if len(errs) > 0 {
		return nil, badRequestError{errors.Join(errs...)}
	}
	return patterns, nil
}

// dryRun is what a command would touch, by what the state topic says now.
type dryRun struct {
	Partitions []PartitionRow `json:"partitions"`
	Lag        int64          `json:"lag"`     // records that a stop now would leave behind
	Unknown    int            `json:"unknown"` // partitions whose lag is not known
	LagSeconds float64        `json:"lagSeconds"`
}

func dryRunOf(v *statestore.View, mirrorName string, patterns mirror.Patterns) dryRun {
	out := dryRun{Partitions: []PartitionRow{}}
	for _, row := range PartitionRows(v, mirrorName) {
		if !patterns.Match(row.Topic) {
			continue
		}
		out.Partitions = append(out.Partitions, row)
		if row.Lag < 0 && row.State != mirror.Stopped.String() {
			out.Unknown++
		}
		out.Lag += max(0, row.Lag)
		out.LagSeconds = max(out.LagSeconds, row.LagSeconds)
	}
	return out
}

// outcomeRow answers for a command that was submitted.
type outcomeRow struct {
	Done    bool           `json:"done"`
	Refused bool           `json:"refused"`
	Message string         `json:"message,omitempty"`
	Topics  []topicOutcome `json:"topics"`
}

type topicOutcome struct {
	Topic   string `json:"topic"`
	Refused bool   `json:"refused"`
	Message string `json:"message,omitempty"`
}

func (s *Server) outcome(v *statestore.View, r *http.Request) (any, error) {
	id, err := hex.DecodeString(r.PathValue("id"))
	if err != nil || len(id) != 16 {
		return nil, badRequestError{errors.New("a command id is 32 hexadecimal digits")}
	}
	row := outcomeRow{Topics: []topicOutcome{}}
	o, ok := v.Outcome([16]byte(id))
	if !ok {
		return row, nil
	}
	row.Done, row.Refused, row.Message = true, o.Refused, o.Message
	for _, t := range o.Topics {
		row.Topics = append(row.Topics, topicOutcome{t.Topic, t.Refused, t.Message})
	}
	return row, nil
}
