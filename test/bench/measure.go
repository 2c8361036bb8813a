package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
)

// result is one run: from the last poll before the first record reached the destination to the last record.
type result struct {
	seconds, mbPerS                         float64
	toolPerGB, srcPerGB, dstPerGB, allPerGB float64
	peakMiB, others                         float64
}

func (r result) String() string {
	return fmt.Sprintf("%5.1f s %6.0f MB/s  CPU s/GB: tool %6.2f source %5.2f destination %5.2f  peak %5.0f MiB  (others %.2f cores)",
		r.seconds, r.mbPerS, r.toolPerGB, r.srcPerGB, r.dstPerGB, r.peakMiB, r.others)
}

// moment is what the kernel had accounted at an instant.
type moment struct {
	at                            time.Time
	tool, src, dst, self, machine float64
}

func (b *bench) now(pid int) moment {
	return moment{time.Now(), cpuSeconds(pid), cpuSeconds(b.s.Pid(1)), cpuSeconds(b.d.Pid(1)), ownCPU(), machineCPU()}
}

// measure copies a topic onto a clean destination with one tool.
func (b *bench) measure(t tool, w workload) (result, error) {
	if err := b.clean(); err != nil {
		return result{}, err
	}
	want, err := count(b.s.Admin(), w.name)
	if err != nil {
		return result{}, err
	}
	pid, stop, err := t.start(w.name)
	if err != nil {
		return result{}, err
	}
	defer stop()
	before := b.now(pid)
	deadline := time.Now().Add(5 * time.Minute)
	for {
		time.Sleep(pollInterval)
		n, err := count(b.d.Admin(), w.name)
		after := b.now(pid)
		switch {
		case err != nil || n == 0:
			before = after
		case n >= want:
			return between(before, after, pid, float64(w.records)*float64(w.size)/1e9), nil
		}
		if time.Now().After(deadline) {
			return result{}, fmt.Errorf("%d of %d records after 5 minutes", n, want)
		}
	}
}

func between(a, b moment, pid int, gb float64) result {
	s := b.at.Sub(a.at).Seconds()
	tool, src, dst := b.tool-a.tool, b.src-a.src, b.dst-a.dst
	return result{
		seconds: s, mbPerS: gb * 1e3 / s, toolPerGB: tool / gb, srcPerGB: src / gb, dstPerGB: dst / gb,
		allPerGB: (tool + src + dst) / gb, peakMiB: peakMiB(pid), others: (b.machine - a.machine - tool - src - dst - (b.self - a.self)) / s,
	}
}

// count is the sum of a topic's log ends; 0 when there is no such topic.
func count(a *kadm.Client, topic string) (n int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	ends, err := a.ListEndOffsets(ctx, topic)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Err == nil {
			n += o.Offset
		}
	})
	return n, err
}

// clean deletes what tools left on both sides and waits until it is gone.
func (b *bench) clean() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		left := 0
		for side, a := range map[string]*kadm.Client{"s": b.s.Admin(), "d": b.d.Admin()} {
			listed, err := a.ListTopicsWithInternal(ctx)
			if err != nil {
				return err
			}
			var doomed []string
			for _, name := range listed.Names() {
				own := strings.HasPrefix(name, "mm2-") || strings.Contains(name, ".internal") || name == "heartbeats" || strings.HasPrefix(name, "__mirror")
				if own || side == "d" && !strings.HasPrefix(name, "__") {
					doomed = append(doomed, name)
				}
			}
			left += len(doomed)
			if len(doomed) > 0 {
				if _, err := a.DeleteTopics(ctx, doomed...); err != nil {
					return err
				}
			}
		}
		if left == 0 {
			return nil
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// cpuSeconds is utime + stime of a process, in ticks of 10 ms.
func cpuSeconds(pid int) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	text := string(b)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+2:])
	return (number(f[11]) + number(f[12])) / 100
}

func ownCPU() float64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return float64(r.Utime.Nano()+r.Stime.Nano()) / 1e9
}

// machineCPU is the busy time of all cores.
func machineCPU() (busy float64) {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	for i, f := range strings.Fields(line)[1:] {
		if i != 3 && i != 4 && i < 8 { // idle, iowait, guests
			busy += number(f)
		}
	}
	return busy / 100
}

// peakMiB is the largest resident set of a process so far.
func peakMiB(pid int) float64 {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmHWM:" {
			return number(f[1]) / 1024
		}
	}
	return 0
}

func number(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}
