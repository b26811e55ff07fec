package payment

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strconv"

	"gorm.io/gorm"

	"example.com/paycast/shared/event"
	"example.com/paycast/shared/facts"
	"example.com/paycast/shared/kafka"
	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/outbox"
	"example.com/paycast/shared/service"
)

// mountOps opens what operators and other services may ask of this service, behind the ops token.
func (s *server) mountOps(o *ops.Server) {
	o.Handle("GET /ops/facts", s.answer(s.facts))
	o.Handle("GET /ops/incidents", s.answer(s.incidents))
	o.Handle("GET /ops/incidents/{id}", s.answer(s.showIncident))
	o.Handle("POST /ops/incidents/{id}/resolve", s.answer(s.resolve))
	o.Handle("GET /ops/orders/{no}", s.answer(s.orderNow))
	o.Handle("GET /ops/orders/{no}/contact", s.answer(s.contact))
	outbox.Mount(o, s.db, s.log)
}

// mountRedelivery lets operators and replays send events once more. The publisher connects when it is first used, so that
// this process starts and answers callbacks while Kafka is down.
func mountRedelivery(p *service.Process, db *gorm.DB, brokers string) error {
	d := outbox.Redelivery{DB: db, Log: p.Log}
	if brokers != "" {
		publisher, err := kafka.NewPublisher(kafka.PublisherConfig{Brokers: brokers, ClientID: "payment-redelivery", Log: p.Log})
		if err != nil {
			return &service.ConfigError{Err: err}
		}
		d.Publisher = publisher
		p.Close(func() {
			if err := publisher.Close(); err != nil {
				p.Log.Warn("closing the publisher", "error", err)
			}
		})
	}
	d.Mount(p.Ops)
	return nil
}

// answer turns a function of a request into a handler.
func (s *server) answer(fn func(r *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := fn(r)
		var told *problem
		switch {
		case err == nil:
			ops.WriteJSON(w, http.StatusOK, body)
		case errors.As(err, &told):
			ops.Problem(w, told.status, told.kind, told.detail)
		default:
			s.log.ErrorContext(r.Context(), "operation failed", "path", r.Pattern, "error", err)
			ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the database did not answer; see the log")
		}
	})
}

func limitOf(r *http.Request) (int, error) {
	text := r.URL.Query().Get("limit")
	if text == "" {
		return facts.DefaultLimit, nil
	}
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 || limit > facts.MaxLimit {
		return 0, &problem{http.StatusBadRequest, "invalid", "limit must be 1 to " + strconv.Itoa(facts.MaxLimit)}
	}
	return limit, nil
}

// facts is the source's side of the reconciliation.
func (s *server) facts(r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := limitOf(r)
	if err != nil {
		return nil, err
	}
	page := facts.SourcePage{Orders: []facts.Order{}}
	// One moment for orders and events: read apart, an order could be older than its own events.
	err = snapshot(r.Context(), s.db, func(tx *gorm.DB) error {
		var orders []order
		find := tx.Order("order_no").Limit(limit)
		if no := query.Get("order_no"); no != "" {
			find = find.Where("order_no = ?", no)
		} else {
			find = find.Where("order_no > ?", query.Get("after"))
		}
		if err := find.Find(&orders).Error; err != nil || len(orders) == 0 {
			return err
		}
		numbers := make([]string, len(orders))
		for i, o := range orders {
			numbers[i] = o.OrderNo
			contents := facts.Contents{
				OrderNo: o.OrderNo, UserID: o.UserID, Title: o.Title, Amount: o.Amount, Currency: o.Currency,
				Status: o.Status, Version: o.Version, CreatedAt: o.CreatedAt, PaidAt: o.PaidAt,
			}
			page.Orders = append(page.Orders, facts.Order{
				OrderNo: o.OrderNo, UserID: o.UserID, Amount: o.Amount, Currency: o.Currency,
				Status: o.Status, Version: o.Version, PaidAt: utc(o.PaidAt), Digest: contents.Digest(), Events: []facts.Sent{},
			})
		}
		if len(orders) == limit && query.Get("order_no") == "" {
			page.Next = numbers[limit-1]
		}
		sent, err := outbox.Facts(r.Context(), tx, event.AggregateOrder, numbers)
		for i := range page.Orders {
			o := &page.Orders[i]
			o.Events = append(o.Events, sent[o.OrderNo]...)
		}
		return err
	})
	return page, err
}

// incidents lists what waits for a person, oldest first; ?state=RESOLVED shows what no longer does.
func (s *server) incidents(r *http.Request) (any, error) {
	query := r.URL.Query()
	limit, err := limitOf(r)
	if err != nil {
		return nil, err
	}
	state := query.Get("state")
	if state != "" && state != incidentOpen && state != incidentResolved {
		return nil, &problem{http.StatusBadRequest, "invalid", "state must be OPEN or RESOLVED"}
	}
	after, err := strconv.ParseInt("0"+query.Get("after"), 10, 64)
	if err != nil {
		return nil, &problem{http.StatusBadRequest, "invalid", "after must be the id of an incident"}
	}
	page := struct {
		Incidents []listedIncident `json:"incidents"`
		Next      int64            `json:"next,omitempty"`
	}{Incidents: []listedIncident{}}
	find := s.db.WithContext(r.Context()).Where("id > ?", after).Order("id").Limit(limit)
	if state != "" {
		find = find.Where("state = ?", state)
	}
	var found []incident
	if err := find.Find(&found).Error; err != nil {
		return nil, err
	}
	for _, i := range found {
		page.Incidents = append(page.Incidents, i.listed())
	}
	if len(found) == limit {
		page.Next = found[limit-1].ID
	}
	return page, nil
}

// orderNow is the order as the public API shows it, for consumers that miss a version of it.
func (s *server) orderNow(r *http.Request) (any, error) {
	no, err := orderNo(r.PathValue("no"))
	if err != nil {
		return nil, err
	}
	return s.getOrder(r.Context(), no)
}

// contact is the only way by which a phone number leaves this service.
func (s *server) contact(r *http.Request) (any, error) {
	no, err := orderNo(r.PathValue("no"))
	if err != nil {
		return nil, err
	}
	var o order
	err = s.db.WithContext(r.Context()).Select("phone").Take(&o, "order_no = ?", no).Error
	if errors.Is(err, gorm.ErrRecordNotFound) {
		return nil, errNoOrder
	}
	return map[string]string{"phone": o.Phone}, err
}

// snapshot lets fn read several tables as they were at one moment.
func snapshot(ctx context.Context, db *gorm.DB, fn func(tx *gorm.DB) error) error {
	return db.WithContext(ctx).Transaction(fn, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
}
