package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// tool is something that copies a topic. start gives its process id and how to end it.
type tool struct {
	name  string
	start func(topic string) (pid int, stop func(), err error)
}

func (b *bench) spawn(name string, cmd *exec.Cmd) (int, func(), error) {
	out, err := os.OpenFile(filepath.Join(b.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, nil, err
	}
	cmd.Dir, cmd.Stdout, cmd.Stderr = b.dir, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		out.Close()
	}, nil
}

func (b *bench) mirrordTool() tool {
	return tool{"mirrord", func(topic string) (int, func(), error) {
		file := filepath.Join(b.dir, "mirrord.yaml")
		yaml := fmt.Sprintf(`destination: {bootstrap_servers: [%s]}
state_topic: {num_partitions: 5, replication_factor: 1}
http: {listen: "127.0.0.1:9464"}
data_dir: %s
mirrors:
  - name: bench
    source: {bootstrap_servers: [%s]}
    topics_include: [%s]
`, b.d.Bootstrap(), b.dir, b.s.Bootstrap(), topic)
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			return 0, nil, err
		}
		return b.spawn("mirrord", exec.Command(b.mirrord, "run", "--config", file))
	}}
}

// mm2 is MirrorMaker 2 in dedicated mode, tuned as is commonly advised; heap and collector as its own script sets them.
func (b *bench) mm2(w workload, tasks int) tool {
	name := fmt.Sprint("mm2-tuned-", tasks)
	return tool{name, func(topic string) (int, func(), error) {
		props := mm2Properties(b.s.Bootstrap(), b.d.Bootstrap(), topic, tasks)
		if w.mm2Codec != "" {
			props += fmt.Sprintf("dst.producer.batch.size=500000\ndst.producer.linger.ms=20\ndst.producer.compression.type=%s\ndst.producer.buffer.memory=67108864\ndst.producer.max.request.size=10485760\nsrc.consumer.fetch.max.bytes=52428800\nsrc.consumer.max.partition.fetch.bytes=4194304\nsrc.consumer.max.poll.records=5000\n", w.mm2Codec)
		}
		file := filepath.Join(b.dir, "mm2.properties")
		if err := os.WriteFile(file, []byte(props), 0o644); err != nil {
			return 0, nil, err
		}
		cmd := exec.Command("java", "-Xms256m", "-Xmx2g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
			"-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true", "org.apache.kafka.connect.mirror.MirrorMaker", file)
		cmd.Env = append(os.Environ(), "CLASSPATH="+b.jars+"/*")
		return b.spawn(name, cmd)
	}}
}

func mm2Properties(src, dst, topic string, tasks int) string {
	return fmt.Sprintf(`clusters=src,dst
src.bootstrap.servers=%s
dst.bootstrap.servers=%s
src->dst.enabled=true
src->dst.topics=%s
dst->src.enabled=false
dst->src.emit.heartbeats.enabled=false
replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy
tasks.max=%d
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
`, src, dst, topic, tasks)
}
