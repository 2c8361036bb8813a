package mmm

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"mirrord/internal/kafka"
	"mirrord/internal/mirror"
)

// The words of ACLs that decisions are about; Kafka's own.
const (
	resourceTopic = "TOPIC"
	literal       = "LITERAL"
	prefixed      = "PREFIXED"
	anyName       = "*"
	allow         = "ALLOW"
	deny          = "DENY"
	everyone      = "User:*"
)

// writeRights are the operations on a topic that change it. They are held back while it is a mirror topic.
var writeRights = []string{"WRITE", "ALTER", "DELETE", "ALTER_CONFIGS", "CREATE", "ALL"}

// readRights is what ALL grants besides, and what it is replaced by while it is held back.
var readRights = []string{"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}

// ownership says why there is an OwnedACL record. A stored format: the first word of the record's binding.
type ownership string

const (
	ownedCopy  ownership = "copy"  // mirrord created it after the source's
	ownedHeld  ownership = "held"  // the source has it; it is created once the topic is STOPPED
	ownedPart  ownership = "part"  // mirrord created it for one STOPPED topic, while the rule it is part of is held for others
	ownedGuard ownership = "guard" // the read-only guard
)

// bindingText is the stored form of an ACL: the ownership and the seven fields, escaped, with spaces between.
func bindingText(o ownership, a kafka.ACL) string {
	fields := []string{string(o)}
	for _, f := range []string{a.ResourceType, a.PatternType, a.ResourceName, a.Operation, a.Permission, a.Principal, a.Host} {
		fields = append(fields, url.QueryEscape(f))
	}
	return strings.Join(fields, " ")
}

// parseBinding reads the stored form.
func parseBinding(text string) (o ownership, a kafka.ACL, err error) {
	fields := strings.Split(text, " ")
	if len(fields) != 8 {
		return "", a, fmt.Errorf("ACL record %q has %d fields instead of 8", text, len(fields))
	}
	for i := range fields {
		if fields[i], err = url.QueryUnescape(fields[i]); err != nil {
			return "", a, fmt.Errorf("ACL record %q: %w", text, err)
		}
	}
	return ownership(fields[0]), kafka.ACL{
		ResourceType: fields[1], PatternType: fields[2], ResourceName: fields[3],
		Operation: fields[4], Permission: fields[5], Principal: fields[6], Host: fields[7],
	}, nil
}

// guardOf is the ACL that keeps everybody but super users from writing a topic.
func guardOf(topic string) kafka.ACL {
	return kafka.ACL{
		ResourceType: resourceTopic, PatternType: literal, ResourceName: topic, Operation: "WRITE",
		Permission: deny, Principal: everyone, Host: anyName,
	}
}

// partOf is what an ACL says about one topic.
func partOf(a kafka.ACL, topic string) kafka.ACL {
	a.PatternType, a.ResourceName = literal, topic
	return a
}

// covers reports whether an ACL speaks about a topic.
func covers(a kafka.ACL, topic string) bool {
	switch {
	case a.ResourceType != resourceTopic:
		return false
	case a.PatternType == prefixed:
		return strings.HasPrefix(topic, a.ResourceName)
	}
	return a.ResourceName == anyName || a.ResourceName == topic
}

// grantsWriting reports whether an ACL admits a change of a topic.
func grantsWriting(a kafka.ACL) bool {
	return a.ResourceType == resourceTopic && a.Permission == allow && slices.Contains(writeRights, a.Operation)
}

// aclRule is one rule of acls_include: resourceType;resourceName;operation;permission;principal. Fields left out at the
// end match anything.
type aclRule [5]mirror.Patterns

// parseRules reads the rules of a definition. A rule that cannot be read selects nothing and is in errs.
func parseRules(items []string) (rules []aclRule, errs []error) {
	for _, item := range items {
		rule, err := parseRule(item)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		rules = append(rules, rule)
	}
	return rules, errs
}

func parseRule(item string) (rule aclRule, err error) {
	fields := strings.Split(item, ";")
	if len(fields) > len(rule) {
		return rule, fmt.Errorf("ACL rule %q has %d fields, at most resourceType;resourceName;operation;permission;principal", item, len(fields))
	}
	for i, field := range fields {
		field = strings.TrimSpace(field)
		if field == "" || field == anyName {
			continue
		}
		if i != 1 && i != 4 {
			field = strings.ToUpper(field)
		}
		p, err := mirror.ParsePattern(field)
		if err != nil {
			return rule, fmt.Errorf("ACL rule %q: %w", item, err)
		}
		rule[i] = mirror.Patterns{p}
	}
	return rule, nil
}

// match reports whether the rule selects an ACL.
func (r aclRule) match(a kafka.ACL) bool {
	for i, value := range []string{a.ResourceType, a.ResourceName, a.Operation, a.Permission, a.Principal} {
		if len(r[i]) > 0 && !r[i].Match(value) {
			return false
		}
	}
	return true
}

func selected(rules []aclRule, a kafka.ACL) bool {
	return slices.ContainsFunc(rules, func(r aclRule) bool { return r.match(a) })
}
