package outbox

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// maxStates keeps a change of the model from eating the machine's memory.
const maxStates = 1_500_000

// search visits all reachable states. It returns the first violation, or, with none, how many states cannot reach the
// end any more.
func search(mu mutant) (broken string, states, stuck int) {
	first := state{}
	for i := range first.row {
		first.row[i].owner = nobody
	}
	for w := range first.worker {
		first.worker[w].ghost, first.worker[w].read = -1, -1
	}
	index := map[state]int32{first: 0}
	queue := []state{first}
	var from, to []int32
	m := &model{mutant: mu}
	for at := 0; at < len(queue); at++ {
		m.emit = func(next state) {
			next = next.normal(mu)
			i, known := index[next]
			if !known {
				i = int32(len(queue))
				index[next] = i
				queue = append(queue, next)
				m.holds(next)
			}
			if int(i) != at {
				from, to = append(from, int32(at)), append(to, i)
			}
		}
		m.steps(queue[at])
		if len(queue) > maxStates {
			panic("the model has grown beyond what a test can search")
		}
		if m.broken != "" {
			return m.broken, len(queue), 0
		}
	}
	return "", len(queue), len(queue) - canFinish(queue, from, to)
}

// normal maps states that cannot be told apart by what may still happen to one of them.
func (s state) normal(mu mutant) state {
	for i := range rows {
		s.late[i] = s.late[i] && !s.log[i] // a further copy changes nothing
	}
	for w := range workers {
		p := &s.worker[w].phase
		for i := range rows {
			if i == 0 && p[1] == waiting {
				continue // the rest of the key looks at it
			}
			fenced := (s.row[i].status != claimed || s.row[i].owner != int8(w)) && mu != settleByID
			if p[i] == done || fenced && (p[i] >= accepted || s.log[i]) {
				p[i] = none // nothing that the relay may still do with this row has an effect
			}
		}
	}
	if mu != workerClock && s.worker[1].before(s.worker[0]) { // the two relays are alike
		s.worker[0], s.worker[1] = s.worker[1], s.worker[0]
		for i := range s.row {
			if o := s.row[i].owner; o == 0 || o == 1 {
				s.row[i].owner = 1 - o
			}
		}
	}
	return s
}

func (a workerState) before(b workerState) bool {
	for i := range a.phase {
		if a.phase[i] != b.phase[i] {
			return a.phase[i] < b.phase[i]
		}
	}
	return a.ghost < b.ghost || a.ghost == b.ghost && a.read < b.read
}

// canFinish counts the states from which the end can be reached, by going back from it.
func canFinish(queue []state, from, to []int32) int {
	start := make([]int32, len(queue)+1)
	for _, t := range to {
		start[t+1]++
	}
	for i := range queue {
		start[i+1] += start[i]
	}
	back, fill := make([]int32, len(from)), append([]int32{}, start...)
	for i, t := range to {
		back[fill[t]] = from[i]
		fill[t]++
	}
	good := make([]bool, len(queue))
	var stack []int32
	for i, s := range queue {
		if finished(s) {
			good[i] = true
			stack = append(stack, int32(i))
		}
	}
	n := len(stack)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		for _, p := range back[start[i]:start[i+1]] {
			if !good[p] {
				good[p] = true
				n++
				stack = append(stack, p)
			}
		}
	}
	return n
}

func TestModelOfTheProtocolHoldsInEveryReachableState(t *testing.T) {
	broken, states, stuck := search(faithful)
	require.Empty(t, broken)
	require.Zero(t, stuck, "states from which not everything can be delivered any more")
	require.Greater(t, states, 100000, "a model that small would prove little")
	t.Logf("%d states, every property holds in each of them", states)
}

func TestModelFindsTheDamageOfEveryMutant(t *testing.T) {
	killed := 0
	mutants := []mutant{settleByID, staleTakeover, workerClock, markFirst, skipLockedOnly, takeoverPastFront, chainGoesOn, sameToken,
		staleHold, holdsStay, noTakeover, forgetsEarly, watermark, deadCountsAsFinished}
	for _, mu := range mutants {
		broken, _, stuck := search(mu)
		if broken == "" && stuck > 0 {
			broken = fmt.Sprintf("in %d states not everything can be delivered any more", stuck)
		}
		if broken == "" {
			t.Errorf("survived: %s", mu)
			continue
		}
		killed++
		t.Logf("killed: %s%s%s", mu, strings.Repeat(" ", 72-len(mu)), broken)
	}
	t.Logf("%d of %d mutants killed", killed, len(mutants))
}
