package demo

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// cluster is an embedded cluster and the demo's own client to it.
type cluster struct {
	fake  *kfake.Cluster
	cl    *kgo.Client
	admin *kadm.Client
}

func startCluster(dir, name string) (*cluster, error) {
	fake, err := kfake.NewCluster(kfake.NumBrokers(3), kfake.ClusterID(name), kfake.DataDir(filepath.Join(dir, name)),
		kfake.MaxVersions(kversion.V4_2_0()), kfake.SeedTopics(-1))
	if err != nil {
		return nil, fmt.Errorf("start the embedded cluster %s: %w", name, err)
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(fake.ListenAddrs()...), kgo.DisableClientMetrics())
	if err != nil {
		fake.Close()
		return nil, err
	}
	return &cluster{fake, cl, kadm.NewClient(cl)}, nil
}

func (c *cluster) close() {
	c.cl.Close()
	c.fake.Close()
}

func (c *cluster) bootstrap() string { return strings.Join(c.fake.ListenAddrs(), ",") }

// ends is the sum of the log ends of the demo's topics, and of their log starts.
func (c *cluster) extent(ctx context.Context) (starts, ends int64, err error) {
	for _, sum := range []struct {
		list func(context.Context, ...string) (kadm.ListedOffsets, error)
		into *int64
	}{{c.admin.ListStartOffsets, &starts}, {c.admin.ListEndOffsets, &ends}} {
		listed, err := sum.list(ctx, topicNames()...)
		if err != nil {
			return 0, 0, err
		}
		listed.Each(func(o kadm.ListedOffset) {
			if o.Err == nil {
				*sum.into += o.Offset
			}
		})
	}
	return starts, ends, nil
}
