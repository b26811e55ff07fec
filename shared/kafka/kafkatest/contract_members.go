package kafkatest

import (
	"errors"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/paycast/shared/testkit"
)

func contractDeadMember(t *testing.T, b broker) {
	group := "group-" + uuid.NewString()
	lives, dies := newGroupMember(t, b, group), newGroupMember(t, b, group)
	lives.join()
	lives.sync(lives.id)

	waits := make(chan struct{})
	go func() {
		defer close(waits)
		_, _ = dies.ask(dies.joinRequest()) // nobody is there any more for the answer
	}()
	lives.awaitRebalance("the other one does not join")
	dies.Close()
	<-waits
	require.Len(t, lives.join().Members, 2, "the broker cannot know yet that one is dead")
	lives.sync(lives.id, dies.id)
	lives.awaitRebalance("the dead one's partitions are given to nobody else")
	require.Len(t, lives.join().Members, 1)
}

const protocolType, protocolName = "consumer", "range"

// groupMember speaks as a group's member does, request by request. Those that are not broken off must succeed.
type groupMember struct {
	*kgo.Client
	t          *testing.T
	group, id  string
	generation int32
}

func newGroupMember(t *testing.T, b broker, group string) *groupMember {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(b.Brokers()))
	require.NoError(t, err)
	t.Cleanup(client.Close)
	m := &groupMember{Client: client, t: t, group: group}
	answer, err := m.ask(m.joinRequest()) // without an id it is given one
	require.NoError(t, err)
	m.id = answer.(*kmsg.JoinGroupResponse).MemberID
	return m
}

func (m *groupMember) ask(request kmsg.Request) (kmsg.Response, error) {
	return m.Request(m.t.Context(), request)
}

func (m *groupMember) joinRequest() kmsg.Request {
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.MemberID, join.ProtocolType = m.group, m.id, protocolType
	join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 10_000, 60_000 // out of reach for a machine that stalls
	protocol, metadata := kmsg.NewJoinGroupRequestProtocol(), kmsg.NewConsumerMemberMetadata()
	protocol.Name, protocol.Metadata = protocolName, metadata.AppendTo(nil)
	join.Protocols = append(join.Protocols, protocol)
	return join
}

func (m *groupMember) join() *kmsg.JoinGroupResponse {
	m.t.Helper()
	answer, err := m.ask(m.joinRequest())
	require.NoError(m.t, err)
	joined := answer.(*kmsg.JoinGroupResponse)
	require.NoError(m.t, kerr.ErrorForCode(joined.ErrorCode))
	m.generation = joined.Generation
	return joined
}

// sync says, as the leader, who the members are.
func (m *groupMember) sync(members ...string) {
	m.t.Helper()
	request := kmsg.NewPtrSyncGroupRequest()
	request.Group, request.MemberID, request.Generation = m.group, m.id, m.generation
	request.ProtocolType, request.Protocol = kmsg.StringPtr(protocolType), kmsg.StringPtr(protocolName)
	for _, id := range members {
		given := kmsg.NewSyncGroupRequestGroupAssignment()
		given.MemberID = id
		request.GroupAssignment = append(request.GroupAssignment, given)
	}
	answer, err := m.ask(request)
	require.NoError(m.t, err)
	require.NoError(m.t, kerr.ErrorForCode(answer.(*kmsg.SyncGroupResponse).ErrorCode))
}

// awaitRebalance sends heartbeats until one is answered with the request to join again.
func (m *groupMember) awaitRebalance(otherwise string) {
	m.t.Helper()
	testkit.Eventually(m.t, patience, func() error {
		request := kmsg.NewPtrHeartbeatRequest()
		request.Group, request.MemberID, request.Generation = m.group, m.id, m.generation
		answer, err := m.ask(request)
		require.NoError(m.t, err)
		if err = kerr.ErrorForCode(answer.(*kmsg.HeartbeatResponse).ErrorCode); err == nil {
			return errors.New(otherwise)
		}
		require.ErrorIs(m.t, err, kerr.RebalanceInProgress)
		return nil
	})
}
