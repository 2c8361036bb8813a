package mmm

import (
	"maps"
	"sync"
	"time"
)

// Status is what the last cycles of one mirror found.
type Status struct {
	Mirror      string
	SourceUp    bool
	SourceError string // why the source is not up
	RefreshedAt time.Time
	Duration    time.Duration
	// Errors are the failures that the last pass of each step met.
	Errors map[Step]StepError
	// Notes tell what was left alone and why, by topic or pattern.
	Notes map[string]string
	// HeldACLs counts the rights to write that wait for STOPPED.
	HeldACLs int
	// Guarded tells whether the read-only guard is in force, else why not.
	Guarded    bool
	GuardError string
}

// StepError is the last failure of a step.
type StepError struct {
	At      time.Time
	Message string
	Count   int // failures in that pass
}

// board holds the Status of one mirror for readers.
type board struct {
	mu     sync.Mutex // guards status
	status Status
}

func (b *board) update(f func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(&b.status)
}

func (b *board) read() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.status
	s.Errors, s.Notes = maps.Clone(s.Errors), maps.Clone(s.Notes)
	return s
}
