package e2e

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/api/types/container"
	mobynet "github.com/moby/moby/api/types/network"
	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
)

// docker runs each node in a container of apache/kafka, or of the image in MIRRORD_KAFKA_IMAGE that has the same
// entrypoint. Both client listeners are published at fixed ports, so that a restarted broker keeps its addresses.
type docker struct {
	api   *testcontainers.DockerClient
	net   *testcontainers.DockerNetwork
	nodes []testcontainers.Container
}

func (d *docker) start(ctx context.Context, nodes []*Node, o Options) (err error) {
	if d.api, err = testcontainers.NewDockerClientWithOpts(ctx); err != nil {
		return fmt.Errorf("reach Docker: %w", err)
	}
	if d.net, err = network.New(ctx); err != nil {
		return err
	}
	var votes []string
	for _, n := range nodes {
		votes = append(votes, fmt.Sprintf("%d@kafka%d:9095", n.ID, n.ID))
	}
	d.nodes = make([]testcontainers.Container, len(nodes))
	errs := make(chan error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			c, err := d.run(ctx, n, strings.Join(votes, ","), o)
			d.nodes[i] = c // set also after an error, so that close removes it
			errs <- err
		})
	}
	wg.Wait()
	for range nodes {
		if e := <-errs; e != nil {
			err = e
		}
	}
	return err
}

func (d *docker) run(ctx context.Context, n *Node, votes string, o Options) (testcontainers.Container, error) {
	host := fmt.Sprint("kafka", n.ID)
	env := map[string]string{"KAFKA_HEAP_OPTS": "-Xms128m -Xmx" + cmpOr(o.Heap, "512m")}
	for _, line := range strings.Split(strings.TrimSpace(properties(n, votes, o)), "\n") {
		key, value, _ := strings.Cut(line, "=")
		env[propertyVariable(key)] = value
	}
	env["KAFKA_LISTENERS"] = "DIRECT://:9092,PROXIED://:9093,INTERNAL://:9094,CONTROLLER://:9095"
	env["KAFKA_ADVERTISED_LISTENERS"] = fmt.Sprintf("DIRECT://%s,PROXIED://%s,INTERNAL://%s:9094", n.Addr, n.viaProxy, host)
	image := cmpOr(os.Getenv("MIRRORD_KAFKA_IMAGE"), "apache/kafka:"+cmpOr(o.Version, defaultVersion))
	return testcontainers.Run(ctx, image, testcontainers.WithEnv(env), testcontainers.WithExposedPorts("9092/tcp", "9093/tcp"),
		testcontainers.WithHostConfigModifier(func(hc *container.HostConfig) {
			hc.PortBindings = mobynet.PortMap{}
			for inside, outside := range map[string]string{"9092/tcp": n.Addr, "9093/tcp": n.upstream} {
				_, port, _ := strings.Cut(outside, ":")
				hc.PortBindings[mobynet.MustParsePort(inside)] = []mobynet.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: port}}
			}
		}),
		network.WithNetwork([]string{host}, d.net))
}

// propertyVariable is the variable that the image's entrypoint turns back into a broker property.
func propertyVariable(property string) string {
	return "KAFKA_" + strings.ToUpper(strings.NewReplacer("_", "__", "-", "___", ".", "_").Replace(property))
}

func (d *docker) kill(i int) error {
	_, err := d.api.ContainerKill(context.Background(), d.nodes[i].GetContainerID(), client.ContainerKillOptions{Signal: "KILL"})
	return err
}

func (d *docker) stop(i int) error {
	limit := 30 * time.Second
	return d.nodes[i].Stop(context.Background(), &limit)
}

func (d *docker) launch(i int) error { return d.nodes[i].Start(context.Background()) }

func (d *docker) freeze(i int) error {
	_, err := d.api.ContainerPause(context.Background(), d.nodes[i].GetContainerID(), client.ContainerPauseOptions{})
	return err
}

func (d *docker) thaw(i int) error {
	_, err := d.api.ContainerUnpause(context.Background(), d.nodes[i].GetContainerID(), client.ContainerUnpauseOptions{})
	return err
}

func (d *docker) logTail(i int) string {
	if i >= len(d.nodes) || d.nodes[i] == nil {
		return "no container"
	}
	logs, err := d.nodes[i].Logs(context.Background())
	if err != nil {
		return err.Error()
	}
	defer logs.Close()
	b, err := io.ReadAll(logs)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-3000):])
}

func (d *docker) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for _, c := range d.nodes {
		wg.Go(func() { _ = testcontainers.TerminateContainer(c, testcontainers.StopTimeout(0)) })
	}
	wg.Wait()
	if d.net != nil {
		_ = d.net.Remove(ctx)
	}
	if d.api != nil {
		_ = d.api.Close()
	}
}
