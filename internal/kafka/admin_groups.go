package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"mirrord/internal/mirror"
)

// Types of groups, as ListGroups names them.
const (
	ClassicGroup  = "classic"
	ConsumerGroup = "consumer" // KIP-848
	ShareGroup    = "share"
	StreamsGroup  = "streams"
)

// Group is a group as its coordinator lists it.
type Group struct {
	ID       string
	Type     string // ClassicGroup where the broker does not tell (before 3.8)
	State    string // Empty, Stable, PreparingRebalance, …; empty where the broker does not tell (before 2.6)
	Protocol string // protocol type: consumer, connect, …; empty for groups that only hold offsets
}

// Active reports whether somebody uses the group, or may: then its offsets are not ours to write.
func (g Group) Active() bool { return g.State != "Empty" && g.State != "Dead" }

// ListGroups lists all groups with type and state, one request per broker. With an error the list is not complete:
// a group that is not in it may exist.
func (c *Cluster) ListGroups(ctx context.Context) ([]Group, error) {
	var errs []error
	groups := map[string]Group{} // a group that just moved is listed by two coordinators
	req := kmsg.NewPtrListGroupsRequest()
	shards(ctx, c, "list groups", req, func(_ *kmsg.ListGroupsRequest, resp *kmsg.ListGroupsResponse, err error) {
		if err == nil {
			err = answerError("list groups", resp.ErrorCode, nil)
		}
		if err != nil {
			errs = append(errs, err)
			return
		}
		for _, g := range resp.Groups {
			groups[g.Group] = Group{g.Group, groupType(g.GroupType), g.GroupState, g.ProtocolType}
		}
	})
	list := slices.SortedFunc(maps.Values(groups), func(a, b Group) int { return strings.Compare(a.ID, b.ID) })
	return list, errors.Join(errs...)
}

func groupType(s string) string {
	if s == "" || strings.EqualFold(s, "unknown") {
		return ClassicGroup
	}
	return strings.ToLower(s)
}

// groupNotFound: there is no group of that name and type.
func groupNotFound(err error) bool { return is(err, kerr.GroupIDNotFound) }

// Member is a member of a group.
type Member struct{ ID, InstanceID, ClientID, Host string }

// GroupDetail says who is in a group.
type GroupDetail struct {
	State   string
	Members []Member
	Err     error
}

// DescribeGroups tells the members of groups, asked by type, one request per coordinator, type and chunk. Streams groups
// are not asked: they have an Err that UnsupportedVersion recognises.
func (c *Cluster) DescribeGroups(ctx context.Context, groups []Group) map[string]GroupDetail {
	details := make(map[string]GroupDetail, len(groups))
	names := map[string][]string{}
	for _, g := range groups {
		names[g.Type] = append(names[g.Type], g.ID)
		details[g.ID] = GroupDetail{Err: missing("describe group " + g.ID)}
	}
	set := func(id string, d GroupDetail) { details[id] = d }
	for kind, ids := range names {
		for chunk := range slices.Chunk(ids, namesPerRequest) {
			switch kind {
			case ClassicGroup:
				c.describeClassic(ctx, chunk, set)
			case ConsumerGroup:
				c.describeConsumer(ctx, chunk, set)
			case ShareGroup:
				c.describeShare(ctx, chunk, set)
			default:
				err := mirror.Errorf(mirror.Refused, "describe %s group: %w", kind, errUnsupported)
				setGroups(chunk, GroupDetail{Err: err}, set)
			}
		}
	}
	return details
}

func setGroups(ids []string, d GroupDetail, set func(string, GroupDetail)) {
	for _, id := range ids {
		set(id, d)
	}
}

func (c *Cluster) describeClassic(ctx context.Context, ids []string, set func(string, GroupDetail)) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = ids
	shards(ctx, c, "describe groups", req, func(req *kmsg.DescribeGroupsRequest, resp *kmsg.DescribeGroupsResponse, err error) {
		if err != nil {
			setGroups(req.Groups, GroupDetail{Err: err}, set)
			return
		}
		for _, g := range resp.Groups {
			d := GroupDetail{State: g.State, Err: answerError("describe group "+g.Group, g.ErrorCode, g.ErrorMessage)}
			for _, m := range g.Members {
				d.Members = append(d.Members, Member{m.MemberID, deref(m.InstanceID), m.ClientID, m.ClientHost})
			}
			set(g.Group, d)
		}
	})
}

func (c *Cluster) describeConsumer(ctx context.Context, ids []string, set func(string, GroupDetail)) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = ids
	shards(ctx, c, "describe groups", req, func(req *kmsg.ConsumerGroupDescribeRequest, resp *kmsg.ConsumerGroupDescribeResponse, err error) {
		if err != nil {
			setGroups(req.Groups, GroupDetail{Err: err}, set)
			return
		}
		for _, g := range resp.Groups {
			d := GroupDetail{State: g.State, Err: answerError("describe group "+g.Group, g.ErrorCode, g.ErrorMessage)}
			for _, m := range g.Members {
				d.Members = append(d.Members, Member{m.MemberID, deref(m.InstanceID), m.ClientID, m.ClientHost})
			}
			set(g.Group, d)
		}
	})
}

func (c *Cluster) describeShare(ctx context.Context, ids []string, set func(string, GroupDetail)) {
	req := kmsg.NewPtrShareGroupDescribeRequest()
	req.GroupIDs = ids
	shards(ctx, c, "describe groups", req, func(req *kmsg.ShareGroupDescribeRequest, resp *kmsg.ShareGroupDescribeResponse, err error) {
		if err != nil {
			setGroups(req.GroupIDs, GroupDetail{Err: err}, set)
			return
		}
		for _, g := range resp.Groups {
			d := GroupDetail{State: g.GroupState, Err: answerError("describe group "+g.GroupID, g.ErrorCode, g.ErrorMessage)}
			for _, m := range g.Members {
				d.Members = append(d.Members, Member{m.MemberID, "", m.ClientID, m.ClientHost})
			}
			set(g.GroupID, d)
		}
	})
}

// DeleteGroups deletes groups of any type, with all their offsets. Groups that are not in the result are gone.
func (c *Cluster) DeleteGroups(ctx context.Context, ids ...string) map[string]error {
	failed := map[string]error{}
	for chunk := range slices.Chunk(ids, namesPerRequest) {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = chunk
		for _, id := range chunk {
			failed[id] = missing("delete group " + id)
		}
		effectShards(ctx, c, "delete groups", req, func(req *kmsg.DeleteGroupsRequest, resp *kmsg.DeleteGroupsResponse, err error) {
			if err != nil {
				setAll(failed, req.Groups, err)
				return
			}
			for _, g := range resp.Groups {
				failed[g.Group] = answerError("delete group "+g.Group, g.ErrorCode, nil)
			}
		})
	}
	dropNil(failed)
	return failed
}
