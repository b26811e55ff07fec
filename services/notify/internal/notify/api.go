package notify

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"
	"gorm.io/gorm"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/telemetry/echoroute"
)

// notification is what the API shows of a command; see openapi.yaml.
type notification struct {
	CommandID         string     `json:"command_id"`
	EventID           string     `json:"event_id"`
	OrderNo           string     `json:"order_no"`
	Kind              string     `json:"kind"`
	Status            Status     `json:"status"`
	Attempts          int        `json:"attempts"`
	ProviderMessageID *string    `json:"provider_message_id"`
	CreatedAt         time.Time  `json:"created_at"`
	SentAt            *time.Time `json:"sent_at"`
}

func (c command) view() notification {
	return notification{
		CommandID: c.CommandID, EventID: c.EventID, OrderNo: c.OrderNo, Kind: c.Kind, Status: c.Status, Attempts: c.Attempts,
		ProviderMessageID: c.ProviderMessageID, CreatedAt: c.CreatedAt.UTC(), SentAt: utc(c.SentAt),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.UTC()
	return &u
}

func routes(db *gorm.DB, log *slog.Logger) http.Handler {
	e := echo.New()
	e.Use(echoroute.Name)
	e.HTTPErrorHandler = func(err error, c echo.Context) { // only the router's errors come here
		status := http.StatusInternalServerError
		var routing *echo.HTTPError
		if errors.As(err, &routing) {
			status = routing.Code
		}
		ops.Problem(c.Response(), status, "routing", "ask GET /notifications?order_no=")
	}
	e.GET("/notifications", func(c echo.Context) error {
		listNotifications(c.Response(), c.Request(), db, log)
		return nil
	})
	return e
}

// listNotifications shows an order's messages, oldest first. An order without any, known or not, has an empty list.
func listNotifications(w http.ResponseWriter, r *http.Request, db *gorm.DB, log *slog.Logger) {
	orderNo := r.URL.Query().Get("order_no")
	if !valid(orderNo) {
		ops.Problem(w, http.StatusBadRequest, "bad-parameter", "give order_no, an order's number")
		return
	}
	var found []command
	err := db.WithContext(r.Context()).Where("order_no = ?", orderNo).Order("created_at, command_id").Find(&found).Error
	if err != nil {
		unavailable(w, r, log, err)
		return
	}
	views := make([]notification, len(found))
	for i, c := range found {
		views[i] = c.view()
	}
	ops.WriteJSON(w, http.StatusOK, map[string]any{"notifications": views})
}

func unavailable(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	log.ErrorContext(r.Context(), "commands could not be read", "path", r.URL.Path, "error", err)
	w.Header().Set("Retry-After", "1")
	ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the database did not answer; ask again")
}
