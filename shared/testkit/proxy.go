package testkit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Link is a TCP connection's way through a proxy that can be disturbed.
type Link struct {
	t     testing.TB
	proxy *toxiproxy.Proxy
}

// Proxy starts a proxy in front of upstream, host:port, until the end of the test. A Kafka client would leave it after its
// first answer, which names the broker's own address: for one client of Kafka there is KafkaProxy, and the faults that
// all of them see are methods of Broker.
func Proxy(t testing.TB, upstream string) *Link {
	t.Helper()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	l := &Link{t, toxiproxy.NewProxy(server, t.Name(), FreeAddr(t), upstream)}
	l.Restore()
	t.Cleanup(l.Cut)
	return l
}

// Addr is where to connect to, host:port.
func (l *Link) Addr() string { return l.proxy.Listen }

// Cut breaks all connections and refuses new ones, until Restore.
func (l *Link) Cut() {
	l.t.Helper()
	l.proxy.Stop()
	awaitRefusal(l.t, l.Addr())
}

// Restore ends Cut.
func (l *Link) Restore() {
	l.t.Helper()
	if err := l.proxy.Start(); err != nil {
		l.t.Fatalf("starting the proxy: %v", err)
	}
}

// Delay lets each chunk of the answers arrive d later, on open connections too, until Heal.
func (l *Link) Delay(d time.Duration) {
	l.t.Helper()
	l.disturb("latency", "downstream", map[string]int64{"latency": d.Milliseconds()})
}

// Swallow lets connections stand and nothing arrive in either direction, as behind a firewall that drops packets. What
// was swallowed never arrives, and Heal breaks these connections.
func (l *Link) Swallow() {
	l.t.Helper()
	l.disturb("timeout", "upstream", map[string]int64{"timeout": 0})
	l.disturb("timeout", "downstream", map[string]int64{"timeout": 0})
}

// CutAnswersAfter lets each connection carry n more bytes of answers and then breaks it, until Heal. With 0 a request
// arrives and its answer never does.
func (l *Link) CutAnswersAfter(n int64) {
	l.t.Helper()
	l.disturb("limit_data", "downstream", map[string]int64{"bytes": n})
}

// Heal ends Delay, Swallow and CutAnswersAfter.
func (l *Link) Heal() { l.proxy.Toxics.ResetToxics(l.t.Context()) }

// awaitRefusal returns when addr, whose listener has been closed, refuses connections. A child that this process starts
// at that moment has a copy of the listening socket until it runs its program; so long connections are accepted, and are
// reset when the copy goes, and nobody can listen there anew.
func awaitRefusal(t testing.TB, addr string) {
	t.Helper()
	dialer := net.Dialer{Timeout: time.Second}
	Eventually(t, time.Minute, func() error {
		conn, err := dialer.DialContext(context.Background(), "tcp", addr)
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		if err != nil {
			return err
		}
		_ = conn.Close() // it was only to see
		return fmt.Errorf("%s still accepts connections", addr)
	})
}

func (l *Link) disturb(kind, direction string, attributes map[string]int64) {
	l.t.Helper()
	toxic, err := json.Marshal(map[string]any{"type": kind, "stream": direction, "attributes": attributes})
	if err == nil {
		_, err = l.proxy.Toxics.AddToxicJson(bytes.NewReader(toxic))
	}
	if err != nil {
		l.t.Fatalf("disturbing the proxy with %s: %v", kind, err)
	}
}
