package mmm

import (
	"fmt"
	"time"
)

// Config holds the intervals of the refresh.
type Config struct {
	RefreshInterval   time.Duration // topics, settings, ACLs
	GroupSyncInterval time.Duration // committed offsets; ≥ 1 s
	// CallTimeout bounds one step against a cluster that does not answer.
	CallTimeout time.Duration
	DataDir     string // where Reseed puts exported tails
}

// DefaultConfig holds the defaults of the configuration file.
func DefaultConfig() Config {
	return Config{
		RefreshInterval: 30 * time.Second, GroupSyncInterval: 30 * time.Second, CallTimeout: 15 * time.Second,
		DataDir: "/var/lib/mirrord",
	}
}

// Validate checks the ranges.
func (c Config) Validate() error {
	switch {
	case c.RefreshInterval < 100*time.Millisecond:
		return fmt.Errorf("metadata_refresh_interval: %v is too short", c.RefreshInterval)
	case c.GroupSyncInterval < time.Second:
		return fmt.Errorf("group_sync_interval: %v, at least 1s is needed", c.GroupSyncInterval)
	}
	return nil
}
