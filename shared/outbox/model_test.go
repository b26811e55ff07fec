package outbox

import "fmt"

// The model is the protocol of this package without SQL: three rows, of which the first two share a key, and two relays.
// The search visits every state that any interleaving of their steps can reach, with crashes at any point, pauses of any
// length (a relay may simply not move while time does), sends that land late or never, and replies that get lost. In each
// state the safety properties must hold, and from each state it must still be possible to deliver everything.
//
// The mutants are the mistakes that outboxes make. The search must find the damage that each does; if it does not, the
// model proves nothing.

const (
	rows, workers = 3, 2
	leaseTicks    = 1 // a lease lasts, or it is over; how long does not matter
)

// status of a row.
const (
	absent  = iota // its transaction has not committed yet
	due            // PENDING or RETRY
	claimed        // SENDING
	sent
	dead
)

// owner of a claimed row: a worker's present claim, or one that nobody knows any more (a crash, a lost reply).
const (
	nobody = -1
	orphan = workers
)

// phase of a row in a worker's claim.
const (
	none     = iota
	waiting  // claimed, not begun
	sending  // on its way
	landed   // in the log, the answer on its way
	accepted // the answers from here on
	unknown  // or not begun, or unreachable: for the row it is the same
	rejected
	done // accepted and settled: the key goes on
)

type rowState struct {
	status, lease int8
	owner         int8
	held          bool // by the first row of its key
	// For a mutant only: the claim's own row is gone, so that no takeover finds this one.
	forgotten bool
}

type workerState struct {
	phase [rows]int8
	// For mutants only; to the faithful protocol neither can do anything. ghost: a settle of an earlier life is still on
	// its way to the database, to make this row due. read: this row was read, to be acted on later. -1: none.
	ghost, read int8
}

type state struct {
	row    [rows]rowState
	log    [rows]bool // at least one copy is in Kafka
	late   [rows]bool // a send that was given up may still land
	worker [workers]workerState
	seen   int8 // the watermark of one mutant
}

// front is the row of the same key that must go first, or -1.
func front(i int) int {
	if i == 1 {
		return 0
	}
	return -1
}

// mutant changes one rule.
type mutant string

const (
	faithful             mutant = ""
	settleByID           mutant = "settle by id, without the token"
	staleTakeover        mutant = "take over what was read as expired, without looking again"
	workerClock          mutant = "judge leases by the relay's own clock"
	markFirst            mutant = "mark as sent before Kafka has answered"
	skipLockedOnly       mutant = "claim row by row with SKIP LOCKED, without the order of the key"
	takeoverPastFront    mutant = "take over for oneself, without the order of the key"
	chainGoesOn          mutant = "go on with the key after an answer that is not accepted"
	sameToken            mutant = "use the same token for every claim"
	staleHold            mutant = "hold behind a row without locking it"
	holdsStay            mutant = "settle without freeing what is held"
	noTakeover           mutant = "never take over"
	forgetsEarly         mutant = "forget a claim when one of its rows is settled"
	watermark            mutant = "read only rows beyond the last one seen"
	deadCountsAsFinished mutant = "let a key go on behind a dead row by itself"
)

// model generates the successors of a state and checks steps.
type model struct {
	mutant mutant
	emit   func(state)
	broken string // the property that a step has violated
}

func (m *model) violate(format string, args ...any) {
	if m.broken == "" {
		m.broken = fmt.Sprintf(format, args...)
	}
}

func (m *model) steps(s state) {
	m.time(s)
	for i := range rows {
		m.outside(s, i)
	}
	for w := range workers {
		m.claim(s, w)
		m.hold(s, w)
		m.crash(s, w)
		m.takeOver(s, w)
		m.ghost(s, w)
		for i := range rows {
			m.send(s, w, i)
			m.settle(s, w, i)
		}
	}
}

// time moves by one tick for every lease.
func (m *model) time(s state) {
	for i := range s.row {
		if s.row[i].lease > 0 {
			s.row[i].lease--
		}
	}
	m.emit(s)
}

// outside: commits, late landings, and an operator who releases a dead row.
func (m *model) outside(s state, i int) {
	r := s.row[i]
	if r.status == absent && (front(i) < 0 || s.row[front(i)].status != absent) {
		t := s
		t.row[i].status = due
		m.emit(t)
	}
	if r.status == dead {
		t := s
		t.row[i].status = due
		m.emit(t)
	}
	if s.late[i] {
		t := s
		t.late[i] = false
		m.emit(t) // it never lands
		m.land(&t, i)
		m.emit(t)
	}
}

// land puts a copy into the log. A first copy must not come before the first copy of the row in front.
func (m *model) land(s *state, i int) {
	if f := front(i); f >= 0 && !s.log[i] && !s.log[f] {
		m.violate("the first copy of version 2 is in Kafka before any of version 1")
	}
	s.log[i] = true
}

// claim takes any subset of the due rows: the batch's limit and SKIP LOCKED decide which. The rule of order then keeps a
// row only if everything unsent before it is kept as well.
func (m *model) claim(s state, w int) {
	if s.worker[w].phase != [rows]int8{} {
		return
	}
	for subset := 1; subset < 1<<rows; subset++ {
		t, any := s, false
		for i := range rows {
			if subset&(1<<i) == 0 || s.row[i].status != due || s.row[i].held || m.mutant == watermark && int8(i) < s.seen {
				continue
			}
			if f := front(i); f >= 0 && !m.passes(s, t, f) {
				continue
			}
			any = true
			t.row[i].status, t.row[i].owner, t.row[i].lease, t.row[i].forgotten = claimed, int8(w), leaseTicks, false
			t.worker[w].phase[i] = waiting
			if m.mutant == watermark {
				t.seen = max(t.seen, int8(i)+1)
			}
		}
		if !any {
			continue
		}
		m.emit(t)
		// The reply is lost: the rows are claimed, and nobody knows.
		t.worker[w].phase = [rows]int8{}
		for i := range t.row {
			if t.row[i].owner == int8(w) {
				t.row[i].owner = orphan
			}
		}
		m.emit(t)
	}
}

// passes: the row in front is sent, or was taken by this very claim, which t is in the middle of.
func (m *model) passes(s, t state, front int) bool {
	before := s.row[front].status
	return before == sent || before == due && t.row[front].status == claimed ||
		m.mutant == skipLockedOnly || m.mutant == deadCountsAsFinished && before == dead
}

// hold sets a row aside behind one that cannot move now.
func (m *model) hold(s state, w int) {
	const i, f = 1, 0
	blocked := s.row[f].status == claimed || s.row[f].status == dead
	if m.mutant == staleHold {
		if s.worker[w].read < 0 && blocked && s.row[i].status == due && !s.row[i].held {
			s.worker[w].read = i
			m.emit(s)
			return
		}
		if s.worker[w].read == i && s.row[i].status == due {
			s.worker[w].read = -1
			s.row[i].held = true
			m.emit(s)
		}
		return
	}
	if blocked && s.row[i].status == due && !s.row[i].held {
		s.row[i].held = true
		m.emit(s)
	}
}

// send moves one row of a claim along.
func (m *model) send(s state, w, i int) {
	to := func(phase int8) state {
		t := s
		t.worker[w].phase[i] = phase
		return t
	}
	switch s.worker[w].phase[i] {
	case waiting:
		m.emit(to(unknown)) // it stops, or its time is short
		if f := front(i); f >= 0 {
			before := s.worker[w].phase[f]
			ahead := before == none || before == accepted || before == done || m.mutant == chainGoesOn && before > accepted
			if !ahead {
				return
			}
		}
		t := to(sending)
		if m.mutant == markFirst && t.row[i].status == claimed && t.row[i].owner == int8(w) {
			t.row[i] = rowState{status: sent, owner: nobody}
		}
		m.emit(t)
	case sending:
		t := to(landed)
		if i == 2 {
			t = to(accepted) // the lone key adds nothing to the races of answers
		}
		m.land(&t, i)
		m.emit(t)
		t = to(unknown) // given up; it can land later
		t.late[i] = true
		m.emit(t)
		m.emit(to(unknown)) // it never will
		if i == 0 {
			m.emit(to(rejected))
		}
	case landed:
		m.emit(to(accepted))
		m.emit(to(unknown)) // the answer is lost
	}
}

// settle writes one answer. The database may have done so although the relay never hears of it; then it does it again.
func (m *model) settle(s state, w, i int) {
	phase := s.worker[w].phase[i]
	if phase < accepted || phase == done {
		return
	}
	t := s
	mine := s.row[i].status == claimed && s.row[i].owner == int8(w)
	if mine || m.mutant == settleByID {
		if !mine {
			m.violate("a settle has changed a row that was not its own any more")
		}
		t.apply(i, phase, m.mutant)
		for j := range t.row {
			t.row[j].forgotten = t.row[j].forgotten || m.mutant == forgetsEarly && t.row[j].owner == int8(w)
		}
		m.emit(t) // the reply is lost
	}
	if phase == accepted {
		t.worker[w].phase[i] = done
	} else {
		t.worker[w].phase[i] = none
		if i == 0 && t.worker[w].phase[1] == waiting && m.mutant != chainGoesOn {
			t.worker[w].phase[1] = unknown // the rest of the key is given back
		}
	}
	if over(t.worker[w].phase) {
		t.worker[w].phase = [rows]int8{}
	}
	m.emit(t)
}

func over(phases [rows]int8) bool {
	for _, p := range phases {
		if p != none && p != done {
			return false
		}
	}
	return true
}

func (s *state) apply(i int, phase int8, mu mutant) {
	if s.row[i].status == absent {
		return
	}
	switch phase {
	case accepted:
		s.row[i] = rowState{status: sent, owner: nobody}
		if i == 0 && mu != holdsStay {
			s.row[1].held = false
		}
	case rejected:
		s.row[i] = rowState{status: dead, owner: nobody}
	default:
		s.row[i] = rowState{status: due, owner: nobody}
	}
}

// crash forgets everything but what is on its way: sends, and perhaps a settle.
func (m *model) crash(s state, w int) {
	if s.worker[w].phase == [rows]int8{} {
		return
	}
	t := s
	settling := int8(-1)
	for i := range rows {
		if s.worker[w].phase[i] == sending {
			t.late[i] = true
		}
		if s.worker[w].phase[i] == unknown && m.mutant == sameToken {
			settling = int8(i)
		}
		if t.row[i].status == claimed && t.row[i].owner == int8(w) && m.mutant != sameToken {
			t.row[i].owner = orphan
		}
	}
	t.worker[w].phase = [rows]int8{}
	t.worker[w].read = -1
	m.emit(t)
	if t.worker[w].ghost < 0 && settling >= 0 {
		t.worker[w].ghost = settling
		m.emit(t)
	}
}

// ghost is the arrival of a settle whose relay has died since. Its token is an old one.
func (m *model) ghost(s state, w int) {
	g := s.worker[w].ghost
	if g < 0 {
		return
	}
	t := s
	t.worker[w].ghost = -1
	if m.mutant == sameToken && s.row[g].status == claimed && s.row[g].owner == int8(w) {
		if s.worker[w].phase[g] != none {
			m.violate("a settle of an earlier claim has changed a row of a later one")
		}
		t.apply(int(g), unknown, m.mutant)
	}
	m.emit(t)
}

// takeOver makes rows due again whose lease is over.
func (m *model) takeOver(s state, w int) {
	if m.mutant == noTakeover {
		return
	}
	for i := range rows {
		r := s.row[i]
		expired := r.status == claimed && r.lease == 0 && !r.forgotten
		switch m.mutant {
		case workerClock:
			expired = r.status == claimed && r.lease <= int8(w) // the second relay's clock is a tick ahead
		case staleTakeover:
			if expired && s.worker[w].read < 0 {
				t := s
				t.worker[w].read = int8(i)
				m.emit(t)
			}
			if s.worker[w].read != int8(i) {
				continue
			}
			expired = true
		}
		if !expired {
			continue
		}
		t := s
		t.worker[w].read = -1
		if r.status == sent || r.status == dead {
			m.violate("a row that was finished is taken over")
		}
		if r.status == claimed && r.lease > 0 {
			m.violate("a row is taken over while its lease lasts")
		}
		if m.mutant == takeoverPastFront {
			if t.worker[w].phase != [rows]int8{} {
				continue
			}
			t.row[i].owner, t.row[i].lease = int8(w), leaseTicks
			t.worker[w].phase[i] = waiting
		} else {
			t.row[i] = rowState{status: due, owner: nobody, held: r.held}
		}
		m.emit(t)
	}
}

// holds checks what must be true in every state.
func (m *model) holds(s state) {
	for i, r := range s.row {
		if r.status == sent && !s.log[i] {
			m.violate("a row is marked as sent and no copy is in Kafka")
		}
		if r.held && (r.status != due || s.row[front(i)].status == sent) {
			m.violate("a row is held by one that has gone")
		}
		if (r.status == claimed) != (r.owner != nobody) {
			m.violate("a row is claimed by nobody, or owned without a claim")
		}
	}
	if s.sends(0) && s.sends(1) {
		m.violate("two relays send one key under leases that last")
	}
}

// sends: the worker is sending a row of the shared key, rightfully.
func (s state) sends(w int) bool {
	for i := range 2 {
		r, phase := s.row[i], s.worker[w].phase[i]
		if (phase == sending || phase == landed) && r.status == claimed && r.owner == int8(w) && r.lease > 0 {
			return true
		}
	}
	return false
}

func finished(s state) bool {
	for _, r := range s.row {
		if r.status != sent {
			return false
		}
	}
	return true
}
