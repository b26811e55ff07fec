package report

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
)

// compared are the modules whose versions matter to the figures.
var compared = []string{
	"github.com/IBM/sarama", "github.com/ThreeDotsLabs/watermill", "github.com/ThreeDotsLabs/watermill-sql/v4",
	"github.com/ThreeDotsLabs/watermill-kafka/v3", "github.com/jackc/pgx/v5", "github.com/twmb/franz-go/pkg/kfake",
}

// ThisMachine describes where we run, as far as the system tells: postgres and buffers are the server's version and
// shared_buffers.
func ThisMachine(postgres, buffers string) Machine {
	m := Machine{
		OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU(), Go: runtime.Version(), Postgres: postgres, Buffers: buffers,
		CPU: "unknown processor", Modules: map[string]string{},
	}
	if name := field("/proc/cpuinfo", "model name"); name != "" {
		m.CPU = name
	}
	m.MemoryMB = MemoryMB()
	load, _ := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(load)); len(f) > 2 {
		m.Load = strings.Join(f[:3], " ")
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			for _, name := range compared {
				if d.Path == name {
					m.Modules[name] = d.Version
				}
			}
		}
	}
	return m
}

// MemoryMB is the memory of this machine, or 0 where the system does not tell.
func MemoryMB() int {
	kB, _ := strconv.Atoi(strings.TrimSuffix(field("/proc/meminfo", "MemTotal"), " kB"))
	return kB >> 10
}

// field is the first value of a name in a file of "name : value" lines.
func field(path, name string) string {
	content, _ := os.ReadFile(path) // another system: unknown
	for l := range strings.Lines(string(content)) {
		if before, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(before) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
