package mirror

import "time"

// Event is something an operator may want to read back later: a state change, a loss, a finding. Events are kept in
// memory by the instance that saw them and are shown newest first.
type Event struct {
	At        time.Time
	Mirror    string
	Topic     string // empty: the mirror as a whole
	Partition int32  // −1: the topic as a whole
	Name      string // past tense, like a log message: "state changed", "records lost"
	From, To  State  // of a state change; otherwise both NotRecorded
	Message   string
}
