package stage

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/paycast/shared/embedded"
	"example.com/paycast/shared/real"
)

// startOfKafka bounds its start, without the fetching.
const startOfKafka = 3 * time.Minute

// RealKafka starts Apache Kafka, which Close stops, and returns its address for Drain.Brokers. All drains share it.
func (s *Stage) RealKafka(ctx context.Context) (brokers string, err error) {
	port, err := embedded.FreePort()
	if err != nil {
		return "", err
	}
	controller, err := embedded.FreePort()
	if err != nil {
		return "", err
	}
	p := &process{log: &tail{}, exited: make(chan struct{})}
	if p.cmd, err = (real.Kafka{Dir: filepath.Join(s.Dir, "kafka"), Port: port, Controller: controller}).Command(ctx); err != nil {
		return "", err
	}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	if err := embedded.Start(p.cmd); err != nil {
		return "", fmt.Errorf("starting Kafka: %w", err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended stands in its log
		close(p.exited)
	}()
	s.kafka, s.kafkaAddr = p, fmt.Sprintf("127.0.0.1:%d", port)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.kafkaAddr))
	if err != nil {
		return "", err
	}
	defer client.Close()
	for began := time.Now(); ; {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := client.Ping(try)
		cancel()
		switch {
		case err == nil:
			return s.kafkaAddr, nil
		case p.ended(), ctx.Err() != nil, time.Since(began) > startOfKafka:
			return "", errors.Join(fmt.Errorf("starting Kafka: it does not answer; it wrote:\n%s", p.words()), err)
		}
	}
}
