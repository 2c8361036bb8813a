package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// ACL is one access rule in Kafka's words: resource types TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID, DELEGATION_TOKEN and USER;
// pattern types LITERAL and PREFIXED; permissions ALLOW and DENY. A word that this release does not know is UNKNOWN.
type ACL struct {
	ResourceType, ResourceName, PatternType string
	Principal, Host                         string
	Operation, Permission                   string
}

// String is one line for an operator.
func (a ACL) String() string {
	return fmt.Sprintf("%s %s to %s from %s on %s %s %q", a.Permission, a.Operation, a.Principal, a.Host, a.PatternType,
		a.ResourceType, a.ResourceName)
}

// DescribeACLs lists all access rules in one request. Without an authorizer the error is one that SecurityDisabled
// recognises.
func (c *Cluster) DescribeACLs(ctx context.Context) ([]ACL, error) {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	resp, err := ask[*kmsg.DescribeACLsResponse](ctx, c, "list ACLs", req)
	if err != nil {
		return nil, err
	}
	if err := answerError("list ACLs", resp.ErrorCode, resp.ErrorMessage); err != nil {
		return nil, err
	}
	var acls []ACL
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			acls = append(acls, ACL{
				r.ResourceType.String(), r.ResourceName, r.ResourcePatternType.String(),
				a.Principal, a.Host, a.Operation.String(), a.PermissionType.String(),
			})
		}
	}
	return acls, nil
}

// aclWords are an ACL's words as numbers.
type aclWords struct {
	resource   kmsg.ACLResourceType
	pattern    kmsg.ACLResourcePatternType
	operation  kmsg.ACLOperation
	permission kmsg.ACLPermissionType
}

// words refuses what is not one exact binding: ANY and MATCH would reach other people's rules.
func (a ACL) words() (w aclWords, err error) {
	var errs [4]error
	w.resource, errs[0] = kmsg.ParseACLResourceType(a.ResourceType)
	w.pattern, errs[1] = kmsg.ParseACLResourcePatternType(a.PatternType)
	w.operation, errs[2] = kmsg.ParseACLOperation(a.Operation)
	w.permission, errs[3] = kmsg.ParseACLPermissionType(a.Permission)
	exact := (w.pattern == kmsg.ACLResourcePatternTypeLiteral || w.pattern == kmsg.ACLResourcePatternTypePrefixed) &&
		w.resource != kmsg.ACLResourceTypeAny && w.operation != kmsg.ACLOperationAny && w.permission != kmsg.ACLPermissionTypeAny
	if err := errors.Join(errs[:]...); err != nil || !exact {
		return w, mirror.Errorf(mirror.Refused, "ACL %v is not an exact binding", a)
	}
	return w, nil
}

// CreateACLs creates access rules, many in a request; one that exists already stays. The errors stand in the order of acls.
func (c *Cluster) CreateACLs(ctx context.Context, acls []ACL) []error {
	return eachACL(acls, func(chunk []ACL, words []aclWords, errs []error) {
		req := kmsg.NewPtrCreateACLsRequest()
		for i, a := range chunk {
			cr := kmsg.NewCreateACLsRequestCreation()
			cr.ResourceType, cr.ResourceName, cr.ResourcePatternType = words[i].resource, a.ResourceName, words[i].pattern
			cr.Principal, cr.Host = a.Principal, a.Host
			cr.Operation, cr.PermissionType = words[i].operation, words[i].permission
			req.Creations = append(req.Creations, cr)
		}
		resp, err := effect[*kmsg.CreateACLsResponse](ctx, c, "create ACLs", req)
		for i, a := range chunk {
			switch {
			case err != nil:
				errs[i] = err
			case i >= len(resp.Results):
				errs[i] = missing("create ACL " + a.String())
			default:
				errs[i] = answerError("create ACL "+a.String(), resp.Results[i].ErrorCode, resp.Results[i].ErrorMessage)
			}
		}
	})
}

// DeleteACLs deletes exactly these access rules and no others; one that is gone already is done. The errors stand in the
// order of acls.
func (c *Cluster) DeleteACLs(ctx context.Context, acls []ACL) []error {
	return eachACL(acls, func(chunk []ACL, words []aclWords, errs []error) {
		req := kmsg.NewPtrDeleteACLsRequest()
		for i, a := range chunk {
			f := kmsg.NewDeleteACLsRequestFilter()
			f.ResourceType, f.ResourceName, f.ResourcePatternType = words[i].resource, kmsg.StringPtr(a.ResourceName), words[i].pattern
			f.Principal, f.Host = kmsg.StringPtr(a.Principal), kmsg.StringPtr(a.Host)
			f.Operation, f.PermissionType = words[i].operation, words[i].permission
			req.Filters = append(req.Filters, f)
		}
		resp, err := effect[*kmsg.DeleteACLsResponse](ctx, c, "delete ACLs", req)
		for i, a := range chunk {
			switch {
			case err != nil:
				errs[i] = err
			case i >= len(resp.Results):
				errs[i] = missing("delete ACL " + a.String())
			default:
				errs[i] = deletedACL("delete ACL "+a.String(), resp.Results[i])
			}
		}
	})
}

func deletedACL(op string, r kmsg.DeleteACLsResponseResult) error {
	if err := answerError(op, r.ErrorCode, r.ErrorMessage); err != nil {
		return err
	}
	for _, m := range r.MatchingACLs {
		if err := answerError(op, m.ErrorCode, m.ErrorMessage); err != nil {
			return err
		}
	}
	return nil
}

// eachACL gives the exact ones among acls in chunks to do, which fills in their errors; the others get theirs here.
func eachACL(acls []ACL, do func(chunk []ACL, words []aclWords, errs []error)) []error {
	var (
		errs    = make([]error, len(acls))
		indexes []int
		exact   []ACL
		words   []aclWords
	)
	for i, a := range acls {
		w, err := a.words()
		if err != nil {
			errs[i] = err
			continue
		}
		indexes, exact, words = append(indexes, i), append(exact, a), append(words, w)
	}
	results := make([]error, len(exact))
	for from := 0; from < len(exact); from += namesPerRequest {
		to := min(from+namesPerRequest, len(exact))
		do(exact[from:to], words[from:to], results[from:to])
	}
	for k, i := range indexes {
		errs[i] = results[k]
	}
	return slices.Clip(errs)
}
