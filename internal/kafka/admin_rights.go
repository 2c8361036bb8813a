package kafka

import (
	"context"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Operations is the set of operations that the own principal may do on a resource (KIP-430), one bit per number of
// Kafka's AclOperation. Without an authorizer it holds all of them.
type Operations int32

// NoOperations is what a broker answers that does not tell.
const NoOperations Operations = math.MinInt32

// Operations that mirrord asks about.
const (
	OpRead            = kmsg.ACLOperationRead
	OpWrite           = kmsg.ACLOperationWrite
	OpCreate          = kmsg.ACLOperationCreate
	OpDelete          = kmsg.ACLOperationDelete
	OpAlter           = kmsg.ACLOperationAlter
	OpDescribe        = kmsg.ACLOperationDescribe
	OpClusterAction   = kmsg.ACLOperationClusterAction
	OpDescribeConfigs = kmsg.ACLOperationDescribeConfigs
	OpAlterConfigs    = kmsg.ACLOperationAlterConfigs
)

// Known is false when the broker did not tell.
func (o Operations) Known() bool { return o != NoOperations }

// Has reports whether the operation is allowed for certain.
func (o Operations) Has(op kmsg.ACLOperation) bool { return o.Known() && o&(1<<op) != 0 }

// MayWriteMarkers reports whether WriteTxnMarkers is allowed, given the operations on the cluster: ALTER, or what brokers
// use among themselves.
func (o Operations) MayWriteMarkers() bool { return o.Has(OpAlter) || o.Has(OpClusterAction) }

// Missing names those of the operations that are not allowed for certain.
func (o Operations) Missing(ops ...kmsg.ACLOperation) []string {
	var names []string
	for _, op := range ops {
		if !o.Has(op) {
			names = append(names, op.String())
		}
	}
	return names
}

// ClusterOperations asks what the own principal may do on the cluster. Needs DESCRIBE on it, else the set is empty.
func (c *Cluster) ClusterOperations(ctx context.Context) (Operations, error) {
	const op = "ask for rights on the cluster"
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp, err := ask[*kmsg.DescribeClusterResponse](ctx, c, op, req)
	if UnsupportedVersion(err) { // before 2.8
		return c.clusterOperationsByMetadata(ctx, op)
	}
	if err != nil {
		return NoOperations, err
	}
	return Operations(resp.ClusterAuthorizedOperations), answerError(op, resp.ErrorCode, resp.ErrorMessage)
}

func (c *Cluster) clusterOperationsByMetadata(ctx context.Context, op string) (Operations, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	req.IncludeClusterAuthorizedOperations = true
	resp, err := ask[*kmsg.MetadataResponse](ctx, c, op, req)
	if err != nil {
		return NoOperations, err
	}
	return Operations(resp.AuthorizedOperations), nil
}

// ResourceOperations is what the own principal may do on one topic or group.
type ResourceOperations struct {
	Operations Operations
	Err        error
}

// TopicOperations asks what the own principal may do on topics.
func (c *Cluster) TopicOperations(ctx context.Context, topics ...string) map[string]ResourceOperations {
	const op = "ask for rights on topics"
	all := make(map[string]ResourceOperations, len(topics))
	for chunk := range slices.Chunk(topics, metadataChunk) {
		req := kmsg.NewPtrMetadataRequest()
		req.IncludeTopicAuthorizedOperations = true
		for _, name := range chunk {
			t := kmsg.NewMetadataRequestTopic()
			t.Topic = kmsg.StringPtr(name)
			req.Topics = append(req.Topics, t)
		}
		resp, err := ask[*kmsg.MetadataResponse](ctx, c, op, req)
		if err != nil {
			for _, name := range chunk {
				all[name] = ResourceOperations{NoOperations, err}
			}
			continue
		}
		for _, t := range resp.Topics {
			all[deref(t.Topic)] = ResourceOperations{Operations(t.AuthorizedOperations), answerError(op, t.ErrorCode, nil)}
		}
	}
	return all
}

// GroupOperations asks what the own principal may do on groups. From Kafka 4.0 on, brokers do not tell it of groups that do
// not exist: no error, but not Known.
func (c *Cluster) GroupOperations(ctx context.Context, groups ...string) map[string]ResourceOperations {
	const op = "ask for rights on groups"
	all := make(map[string]ResourceOperations, len(groups))
	for chunk := range slices.Chunk(groups, namesPerRequest) {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups, req.IncludeAuthorizedOperations = chunk, true
		shards(ctx, c, op, req, func(req *kmsg.DescribeGroupsRequest, resp *kmsg.DescribeGroupsResponse, err error) {
			if err != nil {
				for _, id := range req.Groups {
					all[id] = ResourceOperations{NoOperations, err}
				}
				return
			}
			for _, g := range resp.Groups {
				err := answerError(op, g.ErrorCode, g.ErrorMessage)
				if groupNotFound(err) {
					err = nil
				}
				all[g.Group] = ResourceOperations{Operations(g.AuthorizedOperations), err}
			}
		})
	}
	return all
}
