package embedded

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// KafkaConfig says how a broker runs. Addr and Dir are required.
type KafkaConfig struct {
	Addr   string           // 127.0.0.1:port
	Dir    string           // records, topics and committed offsets; continued when it is there
	Topics map[string]int32 // made at the start unless they exist: name → partitions
}

// ServeKafka runs a broker in this process until ctx ends. What it has acknowledged is with the kernel, so it survives
// kill -9 of the process, but not a crash of the machine. Topics are never made by using them.
func ServeKafka(ctx context.Context, cfg KafkaConfig) error {
	cluster, err := NewKafka(cfg)
	if err != nil {
		return err
	}
	<-ctx.Done()
	cluster.Close()
	return nil
}

// NewKafka starts a broker whose caller stops it with Close; more options are kfake's own.
func NewKafka(cfg KafkaConfig, more ...kfake.Opt) (*kfake.Cluster, error) {
	host, portText, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("starting kafka: %w", err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil || host != "127.0.0.1" {
		return nil, fmt.Errorf("starting kafka: address %q is not 127.0.0.1:port", cfg.Addr)
	}
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.Ports(port),
		kfake.DataDir(cfg.Dir),
		kfake.BrokerConfigs(map[string]string{"auto.create.topics.enable": "false"}), // which is so, and should be told
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
		// Members ask for a session time-out that fits their test or demo; the usual minimum of 6 s is for clusters.
		kfake.GroupMinSessionTimeout(100 * time.Millisecond),
	}, more...)...)
	if err != nil {
		return nil, fmt.Errorf("starting kafka on %s: %w", cfg.Addr, err)
	}
	refuseImpossibleTopics(cluster, host, port)
	removeTheDead(cluster, cfg.Addr)
	for topic, partitions := range cfg.Topics {
		if cluster.TopicInfo(topic) != nil {
			continue
		}
		if err := cluster.CreateTopic(topic, partitions, nil); err != nil {
			cluster.Close()
			return nil, fmt.Errorf("creating topic %s: %w", topic, err)
		}
	}
	return cluster, nil
}
