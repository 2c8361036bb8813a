package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"mirrord/internal/mirror"
)

// mirrorSettings is the table of the keys of one mirror.
func mirrorSettings() []setting[mirror.Definition] {
	return slices.Concat([]setting[mirror.Definition]{
		field("name", "unique at the destination; part of every stored key", text,
			func(d *mirror.Definition) *string { return &d.Name }, rule[string]{"a legal mirror name", mirror.ValidateName}),
	},
		below("source", func(d *mirror.Definition) *mirror.Connection { return &d.Source }, connectionSettings()),
		[]setting[mirror.Definition]{
			field("source.cluster_id", "expected id of the source; empty: the one that answers first is kept", text,
				func(d *mirror.Definition) *string { return &d.SourceClusterID }, rule[string]{}),
		}, selectionSettings(), modeSettings())
}

func selectionSettings() []setting[mirror.Definition] {
	type def = mirror.Definition
	patterns := rule[[]string]{"names or RE2 expressions (full match)", CheckPatterns}
	return []setting[def]{
		field("topics_include", "topics to mirror; empty: only those started by command", texts,
			func(d *def) *[]string { return &d.TopicsInclude }, patterns),
		field("topics_exclude", "topics never to mirror; wins over topics_include", texts,
			func(d *def) *[]string { return &d.TopicsExclude }, patterns),
		field("topic_properties_exclude", "topic settings that are not carried over", texts,
			func(d *def) *[]string { return &d.TopicPropertiesExclude }, patterns),
		field("groups_include", "consumer groups whose offsets are carried over", texts,
			func(d *def) *[]string { return &d.GroupsInclude }, patterns),
		field("groups_exclude", "consumer groups to leave out; wins over groups_include", texts,
			func(d *def) *[]string { return &d.GroupsExclude }, patterns),
		field("acls_include", "resourceType;resourceName;operation;permission;principal, * = any; empty: none", texts,
			func(d *def) *[]string { return &d.ACLsInclude }, rule[[]string]{"* or five parts", CheckACLRules}),
	}
}

func modeSettings() []setting[mirror.Definition] {
	type def = mirror.Definition
	return []setting[def]{
		field("replication_factor", "of created topics; -1: the destination's default", number[int16](),
			func(d *def) *int16 { return &d.ReplicationFactor },
			must("-1 or 1 to 100", func(n int16) bool { return n == -1 || n >= 1 && n <= 100 })),
		field("transactions", "exact: as they are; committed: decided data only; auto: exact if all brokers allow it", text,
			func(d *def) *string { return &d.Transactions }, oneOf(mirror.Auto, mirror.Exact, mirror.Committed)),
		field("fillers", "what takes the place of missing offsets; auto: markers where allowed, else transactions", text,
			func(d *def) *string { return &d.Fillers }, oneOf(mirror.Auto, mirror.Markers, mirror.Transactions)),
		field("epoch_fencing", "when the destination's leader epoch is raised above the source's", text,
			func(d *def) *string { return &d.EpochFencing }, oneOf(mirror.Off, mirror.Promotion, mirror.Continuous)),
		field("read_only", "acl: writing to mirror topics is denied to others; auto: where there is an authorizer", text,
			func(d *def) *string { return &d.ReadOnly }, oneOf(mirror.Auto, mirror.Off, mirror.GuardACL)),
		field("on_lost_range", "records expired before they were copied; fail: wait for recover", text,
			func(d *def) *string { return &d.OnLostRange }, oneOf(mirror.Continue, mirror.Fail)),
		field("support_unclean_leader_election", "true: wait for all replicas, not only min.insync, before mirroring", boolean,
			func(d *def) *bool { return &d.SupportUncleanLeaderElection }, rule[bool]{}),
		field("throttle", "bytes/s written to the destination by this mirror; 0: no limit", size,
			func(d *def) *int64 { return &d.Throttle }, sizes(0, 1<<50)),
	}
}

var quantifierOrClass = regexp.MustCompile(`\{[^}]*\}|\[[^\]]*\]`)

// CheckPatterns tells which items are neither a literal name nor an RE2 expression, and which can match nothing
// although they look as if.
func CheckPatterns(items []string) error {
	var errs []error
	for i, item := range items {
		if err := checkPattern(item); err != nil {
			errs = append(errs, &itemError{i, err})
		}
	}
	return errors.Join(errs...)
}

func checkPattern(item string) error {
	switch {
	case item == "":
		return errors.New("an empty item matches nothing")
	case item == "*":
		return errors.New(`"*" is not an RE2 expression; to match every name write ".*"`)
	case strings.TrimSpace(item) != item:
		return fmt.Errorf("%q begins or ends with white space, which no name has", item)
	case strings.Contains(quantifierOrClass.ReplaceAllString(item, ""), ","):
		return fmt.Errorf("%q has a comma, which no name has; write two items", item)
	}
	if _, err := mirror.ParsePattern(item); err != nil {
		return err
	}
	return nil
}
