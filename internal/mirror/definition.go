package mirror

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Secret refers to a secret and never holds one: "${file:PATH}", "${file:PATH:KEY}" or "${env:NAME}", resolved on the
// daemon's host each time a connection is made. Empty: none.
type Secret string

// Security says how to connect to a cluster. The zero value is PLAINTEXT. File paths are absolute; files are read anew
// for each connection, so renewed certificates need no restart.
type Security struct {
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; empty: PLAINTEXT
	SASL     SASL
	TLS      TLS
}

// SASL holds the login of SASL_* protocols.
type SASL struct {
	Mechanism     string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER
	Username      string
	Password      Secret
	TokenEndpoint string // OAUTHBEARER, client credentials grant
	ClientID      string
	ClientSecret  Secret
	Scope         string
}

// TLS holds the files of SSL protocols, all PEM.
type TLS struct {
	CAFile, CertFile, KeyFile string
	ServerName                string // empty: the host that is dialled
	SkipHostname              bool   // ssl.endpoint.identification.algorithm is empty
}

// Connection is what is needed to reach a cluster. Comparing two with Equal tells whether connections must be rebuilt.
type Connection struct {
	BootstrapServers []string
	Security         Security
}

// Equal reports whether both reach the same place in the same way.
func (c Connection) Equal(o Connection) bool {
	return slices.Equal(c.BootstrapServers, o.BootstrapServers) && c.Security == o.Security
}

// Modes of a Definition.
const (
	Auto         = "auto"
	Exact        = "exact"        // transactions: batches and markers as they are, producer ids shifted
	Committed    = "committed"    // transactions: decided data only
	Markers      = "markers"      // fillers: WriteTxnMarkers
	Transactions = "transactions" // fillers: empty aborted transactions
	Off          = "off"
	Promotion    = "promotion"
	Continuous   = "continuous"
	GuardACL     = "acl"
	Continue     = "continue"
	Fail         = "fail"
)

// Definition is one mirror as an operator defined it. It is stored in __mirror_state as Settings and never holds a
// secret.
type Definition struct {
	Name                         string
	Source                       Connection
	SourceClusterID              string // expected; empty: whatever answers first
	TopicsInclude, TopicsExclude []string
	TopicPropertiesExclude       []string
	GroupsInclude, GroupsExclude []string
	ACLsInclude                  []string
	ReplicationFactor            int16  // −1: the destination's default
	Transactions                 string // Exact, Committed or Auto
	Fillers                      string // Markers, Transactions or Auto
	EpochFencing                 string // Off, Promotion or Continuous
	ReadOnly                     string // Off, GuardACL or Auto
	OnLostRange                  string // Continue or Fail
	SupportUncleanLeaderElection bool
	Throttle                     int64 // bytes/s, 0: none
}

// DefaultDefinition holds the defaults of SPEC §4.
func DefaultDefinition(name string) Definition {
	return Definition{
		Name: name, TopicsExclude: []string{"__.*"},
		TopicPropertiesExclude: []string{
			"follower.replication.throttled.replicas", "leader.replication.throttled.replicas",
			"message.timestamp.difference.max.ms", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms",
			"unclean.leader.election.enable", "min.insync.replicas",
		},
		GroupsInclude: []string{".*"}, ACLsInclude: []string{"*"}, ReplicationFactor: -1, Transactions: Auto, Fillers: Auto,
		EpochFencing: Promotion, ReadOnly: Auto, OnLostRange: Continue,
	}
}

var legalName = regexp.MustCompile(`^[a-zA-Z0-9._-]+$`)

// ValidateName checks a mirror's name: ≤ 249 of letters, digits, '.', '_', '-'; not "." or ".."; not ending in
// ".stopped", ".paused" or ".removed".
func ValidateName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("a mirror needs a name")
	case len(name) > 249:
		return fmt.Errorf("mirror name of %d characters: at most 249 are allowed", len(name))
	case name == "." || name == "..":
		return fmt.Errorf("mirror name %q is not allowed", name)
	case !legalName.MatchString(name):
		return fmt.Errorf("mirror name %q: only letters, digits, '.', '_' and '-' are allowed", name)
	}
	for _, suffix := range []string{".stopped", ".paused", ".removed"} {
		if strings.HasSuffix(name, suffix) {
			return fmt.Errorf("mirror name %q: the ending %q is not allowed", name, suffix)
		}
	}
	return nil
}

// Pattern is one item of a topic or group list: a literal if made only of characters legal in topic names, otherwise an
// RE2 expression that must match the full name.
type Pattern struct {
	text string
	re   *regexp.Regexp // nil: literal
}

// ParsePattern compiles an item.
func ParsePattern(item string) (Pattern, error) {
	if legalName.MatchString(item) {
		return Pattern{text: item}, nil
	}
	// Compiled as it is first: brackets that are balanced only by the wrapping must not pass.
	_, err := regexp.Compile(item)
	var re *regexp.Regexp
	if err == nil {
		re, err = regexp.Compile(`^(?s:` + item + `)$`) // a group's id may have line breaks
	}
	if err != nil {
		return Pattern{}, fmt.Errorf("%q is neither a topic name nor an RE2 expression: %w", item, err)
	}
	return Pattern{item, re}, nil
}

// Literal reports whether the item names exactly one topic.
func (p Pattern) Literal() bool { return p.re == nil }

// String is the item as written.
func (p Pattern) String() string { return p.text }

// Match reports whether the item selects name.
func (p Pattern) Match(name string) bool {
	if p.re == nil {
		return p.text == name
	}
	return p.re.MatchString(name)
}

// Patterns is a list of which any may match.
type Patterns []Pattern

// ParsePatterns compiles a list and reports every bad item.
func ParsePatterns(items []string) (ps Patterns, errs []error) {
	for _, item := range items {
		p, err := ParsePattern(item)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ps = append(ps, p)
	}
	return ps, errs
}

// Match reports whether any item selects name.
func (ps Patterns) Match(name string) bool {
	return slices.ContainsFunc(ps, func(p Pattern) bool { return p.Match(name) })
}
