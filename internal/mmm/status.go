package mmm

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"mirrord/internal/mirror"
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
	// SettingsLeft are settings of the source that the destination does not know.
	SettingsLeft []string
	// Lowered are topics whose min.insync.replicas is more at the source than they have replicas here.
	Lowered []string
	// ACLsLeft is why ACLs are not mirrored; empty: they are.
	ACLsLeft string
	// HeldACLs counts the rights to write that wait for STOPPED.
	HeldACLs int
	// Unguarded is why the read-only guard is not in force though it is wanted; empty: it is, or is off.
	Unguarded string
}

// left tells what is left alone and why, sorted. What failed is in Errors.
func (s Status) left() (notes []string) {
	for subject, why := range s.Notes {
		notes = append(notes, subject+" "+why)
	}
	if len(s.SettingsLeft) > 0 {
		notes = append(notes, "settings left out that the destination does not know: "+strings.Join(s.SettingsLeft, ", "))
	}
	if len(s.Lowered) > 0 {
		notes = append(notes, keyMinInsync+" is as many as there are replicas, and more at the source: "+strings.Join(names(s.Lowered), ", "))
	}
	if s.ACLsLeft != "" {
		notes = append(notes, "ACLs are not mirrored: "+s.ACLsLeft)
	}
	if s.HeldACLs > 0 {
		notes = append(notes, fmt.Sprintf("rights to write that wait until their topics are %s: %d", mirror.Stopped, s.HeldACLs))
	}
	if _, failed := s.Errors[StepGuard]; s.Unguarded != "" && !failed {
		notes = append(notes, "mirror topics are not guarded: "+s.Unguarded)
	}
	slices.Sort(notes)
	if n := len(notes) - mostNotes; n > 0 {
		notes = append(notes[:mostNotes], fmt.Sprintf("… and %d more", n))
	}
	return notes
}

// mostNotes bounds the record that holds them.
const mostNotes = 50

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
