package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"mirrord/internal/mirror"
)

// aclWords are Kafka's words for those parts of a rule that know no others.
var aclWords = map[int][]string{
	0: {"TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"},
	2: {
		"ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
		"IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS",
	},
	3: {"ALLOW", "DENY"},
}

var aclParts = [...]string{"resource type", "resource name", "operation", "permission", "principal"}

// CheckACLRules tells which items are neither "*" nor have five parts, each of them "*" or a pattern, and which can match
// no ACL that there may be.
func CheckACLRules(items []string) error {
	var errs []error
	for i, item := range items {
		for _, err := range checkACLRule(item) {
			errs = append(errs, &itemError{i, err})
		}
	}
	return errors.Join(errs...)
}

func checkACLRule(item string) (errs []error) {
	parts := strings.Split(item, ";")
	if item == "*" {
		return nil
	}
	if len(parts) != len(aclParts) || slices.Contains(parts, "") {
		return []error{fmt.Errorf("%q must be * or resourceType;resourceName;operation;permission;principal", item)}
	}
	for i, part := range parts {
		if err := checkACLPart(i, strings.TrimSpace(part)); err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", item, err))
		}
	}
	return errs
}

// checkACLPart judges one part. Words may be written in any case.
func checkACLPart(i int, part string) error {
	words := aclWords[i]
	if words != nil {
		part = strings.ToUpper(part)
	}
	if part == "*" {
		return nil
	}
	p, err := mirror.ParsePattern(part)
	switch {
	case err != nil:
		return err
	case words != nil && !slices.ContainsFunc(words, p.Match):
		return noSuchWord(aclParts[i], part, words)
	case aclParts[i] == "principal" && p.Literal():
		return fmt.Errorf("no principal is called %s: one has a type; did you mean User:%s?", part, part)
	}
	return nil
}

func noSuchWord(what, got string, words []string) error {
	if near := nearest(got, words); near != "" {
		return fmt.Errorf("no %s is called %s; did you mean %s?", what, got, near)
	}
	return fmt.Errorf("no %s is called %s: there are %s", what, got, strings.Join(words, ", "))
}
