package sms

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Message is one accepted text message. Attempts counts the requests that came with its key, whatever their answer.
type Message struct {
	Key        string    `json:"key"`
	MessageID  string    `json:"message_id"`
	To         string    `json:"to"`
	Text       string    `json:"text"`
	ReceivedAt time.Time `json:"received_at"`
	Attempts   int       `json:"attempts"`
}

// errKeyReused says that a key came back with another recipient or text.
var errKeyReused = errors.New("this Idempotency-Key was used for another message")

// store keeps messages in memory and, when it has a file, appends each change to it: the last line of a key counts.
type store struct {
	mu       sync.Mutex
	messages map[string]*Message
	attempts map[string]int // also of keys not accepted yet
	order    []string       // accepted keys by arrival
	file     *os.File       // nil keeps nothing
}

func openStore(dir string) (*store, error) {
	s := &store{messages: map[string]*Message{}, attempts: map[string]int{}}
	if dir == "" {
		return s, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	if s.file, err = os.OpenFile(filepath.Join(dir, "sms.jsonl"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := s.load(); err != nil {
		_ = s.file.Close()
		return nil, fmt.Errorf("reading %s: %w", s.file.Name(), err)
	}
	return s, nil
}

// load reads the file and leaves the write position behind its last whole line: a process killed in the middle of a
// line had not answered for it yet.
func (s *store) load() error {
	var whole int64
	r := bufio.NewReader(s.file)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		var m Message
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("line at byte %d: %w", whole, err)
		}
		whole += int64(len(line))
		s.put(&m)
	}
	if err := s.file.Truncate(whole); err != nil {
		return err
	}
	_, err := s.file.Seek(whole, io.SeekStart)
	return err
}

func (s *store) put(m *Message) {
	if _, known := s.messages[m.Key]; !known {
		s.order = append(s.order, m.Key)
	}
	s.messages[m.Key], s.attempts[m.Key] = m, m.Attempts
}

// arrived counts a request. It fails when the key belongs to another message.
func (s *store) arrived(key, to, text string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attempts[key]++
	m, known := s.messages[key]
	if !known {
		return nil
	}
	if m.To != to || m.Text != text {
		return errKeyReused
	}
	m.Attempts = s.attempts[key]
	return s.write(m)
}

// accept takes the message, once per key, and is durable against a killed process when it returns.
func (s *store) accept(key, to, text string) (Message, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m, known := s.messages[key]; known {
		if m.To != to || m.Text != text {
			return Message{}, errKeyReused
		}
		return *m, nil
	}
	m := &Message{
		Key: key, MessageID: "sms_" + rand.Text(), To: to, Text: text, ReceivedAt: time.Now().UTC(), Attempts: s.attempts[key],
	}
	if err := s.write(m); err != nil {
		return Message{}, err
	}
	s.put(m)
	return *m, nil
}

func (s *store) write(m *Message) error {
	if s.file == nil {
		return nil
	}
	line, err := json.Marshal(m)
	if err == nil {
		_, err = s.file.Write(append(line, '\n'))
	}
	return err
}

func (s *store) find(key string) (Message, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, known := s.messages[key]
	if !known {
		return Message{}, false
	}
	return *m, true
}

func (s *store) all() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Message, 0, len(s.order))
	for key := range slices.Values(s.order) {
		list = append(list, *s.messages[key])
	}
	return list
}

func (s *store) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
