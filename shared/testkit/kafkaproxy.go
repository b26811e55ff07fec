package testkit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// KafkaProxy is Proxy in front of the broker at brokers, host:port, for one of its clients: the others do not notice. A
// client learns its brokers' addresses from the first one's answers, so here those answers name the proxy instead.
func KafkaProxy(t testing.TB, brokers string) *Link {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listening for Kafka's clients: %v", err)
	}
	link := Proxy(t, listener.Addr().String())
	host, portText, err := net.SplitHostPort(link.Addr())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		t.Fatal(err)
	}
	var open sync.WaitGroup
	open.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed below
			}
			open.Go(func() { serve(client, brokers, renamer{host, int32(port), &sync.Map{}}) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		link.Cut() // ends the connections, for which Wait waits
		open.Wait()
	})
	return link
}

// serve carries one connection until either side ends it.
func serve(client net.Conn, brokers string, names renamer) {
	defer func() { _ = client.Close() }()
	broker, err := new(net.Dialer).DialContext(context.Background(), "tcp", brokers)
	if err != nil {
		return // as if the broker had refused
	}
	var both sync.WaitGroup
	carry := func(from, to net.Conn, look func(frame []byte) ([]byte, error)) {
		defer func() { _, _ = client.Close(), broker.Close() }() // one direction alone is of no use
		for {
			frame, err := readFrame(from)
			if err == nil {
				frame, err = look(frame)
			}
			if err == nil {
				_, err = to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
			}
			if err != nil {
				return
			}
		}
	}
	both.Go(func() { carry(client, broker, names.request) })
	both.Go(func() { carry(broker, client, names.answer) })
	both.Wait()
}

func readFrame(from io.Reader) ([]byte, error) {
	var length [4]byte
	if _, err := io.ReadFull(from, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	_, err := io.ReadFull(from, frame)
	return frame, err
}

// renamer puts one address into the answers that name brokers.
type renamer struct {
	host     string
	port     int32
	versions *sync.Map // of the questions for brokers that are not answered yet, by number
}

var errShort = errors.New("not a message of Kafka's protocol")

// request remembers which answers to change: a request begins with its kind, version and number.
func (r renamer) request(frame []byte) ([]byte, error) {
	if len(frame) < 8 {
		return nil, errShort
	}
	if kmsg.Key(binary.BigEndian.Uint16(frame)) == kmsg.Metadata {
		r.versions.Store(binary.BigEndian.Uint32(frame[4:]), int16(binary.BigEndian.Uint16(frame[2:])))
	}
	return frame, nil
}

// answer changes what request has remembered: an answer begins with the number, and in newer versions a byte that says
// that no tags follow.
func (r renamer) answer(frame []byte) ([]byte, error) {
	if len(frame) < 5 {
		return nil, errShort
	}
	version, asked := r.versions.LoadAndDelete(binary.BigEndian.Uint32(frame))
	if !asked {
		return frame, nil
	}
	metadata := kmsg.NewPtrMetadataResponse()
	metadata.SetVersion(version.(int16))
	head := 4
	if metadata.IsFlexible() {
		head++
	}
	if err := metadata.ReadFrom(frame[head:]); err != nil {
		return nil, fmt.Errorf("reading the brokers' addresses: %w", err)
	}
	for i := range metadata.Brokers {
		metadata.Brokers[i].Host, metadata.Brokers[i].Port = r.host, r.port
	}
	return metadata.AppendTo(frame[:head:head]), nil
}
