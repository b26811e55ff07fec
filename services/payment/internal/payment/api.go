package payment

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/google/uuid"
	"github.com/labstack/echo/v4"
	"golang.org/x/sync/singleflight"
	"gorm.io/gorm"

	"example.com/paycast/shared/ops"
	"example.com/paycast/shared/postgres"
	"example.com/paycast/shared/telemetry/echoroute"
	"example.com/paycast/shared/webhook"
)

// server is what the handlers share.
type server struct {
	db         *gorm.DB
	secrets    webhook.Secrets
	merchantID string
	wake       func() // tells the relay that there is something to send; never blocks
	metrics    *metrics
	log        *slog.Logger
	copies     singleflight.Group
}

// routes is the public API; openapi.yaml describes it and a test holds the two together.
func (s *server) routes() http.Handler {
	e := echo.New()
	e.Use(echoroute.Name)
	e.HTTPErrorHandler = s.answerError
	e.POST("/orders", s.postOrder)
	e.GET("/orders/:no", s.showOrder)
	e.POST("/orders/:no/cancel", s.postCancel)
	e.POST("/callbacks/payment", s.callback)
	return e
}

func (s *server) postOrder(c echo.Context) error {
	key := c.Request().Header.Get("Idempotency-Key")
	if !keyForm.MatchString(key) {
		return &problem{http.StatusBadRequest, "idempotency-key", "send a header Idempotency-Key of 1 to 128 visible ASCII characters, the same for every attempt at this order"}
	}
	body, err := readBody(c.Response().Writer, c.Request())
	if err != nil {
		return err
	}
	var n newOrder
	if err := decodeJSON(body, &n); err != nil {
		return invalid(err)
	}
	if err := n.check(); err != nil {
		return invalid(err)
	}
	ctx, cancel := committing(c)
	defer cancel()
	o, err := s.createOrder(ctx, key, hashOf(body), n)
	if err != nil {
		return err
	}
	c.Response().Header().Set("Location", "/orders/"+o.OrderNo)
	ops.WriteJSON(c.Response(), http.StatusCreated, o.view())
	return nil
}

func (s *server) showOrder(c echo.Context) error {
	no, err := orderNo(c.Param("no"))
	if err != nil {
		return err
	}
	view, err := s.getOrder(c.Request().Context(), no)
	if err != nil {
		return err
	}
	ops.WriteJSON(c.Response(), http.StatusOK, view)
	return nil
}

func (s *server) postCancel(c echo.Context) error {
	no, err := orderNo(c.Param("no"))
	if err != nil {
		return err
	}
	ctx, cancel := committing(c)
	defer cancel()
	view, err := s.cancelOrder(ctx, no)
	if err != nil {
		return err
	}
	ops.WriteJSON(c.Response(), http.StatusOK, view)
	return nil
}

// orderNo keeps out of SQL what cannot be an order number, such as bytes that Postgres refuses as text.
func orderNo(param string) (string, error) {
	if uuid.Validate(param) != nil {
		return "", errNoOrder
	}
	return param, nil
}

// committing is the context of a request that writes: it does not end when the client hangs up, only at its deadline.
func committing(c echo.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(c.Request().Context()), commitDeadline)
}

// answerError is the one place where errors become answers and log lines. An unknown outcome, of COMMIT for example, is
// a 5xx: the client asks again, and its key or webhook id finds the truth.
func (s *server) answerError(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	var told *problem
	var routing *echo.HTTPError
	w := c.Response()
	switch {
	case errors.As(err, &told):
		ops.Problem(w, told.status, told.kind, told.detail)
	case errors.As(err, &routing):
		ops.Problem(w, routing.Code, "routing", http.StatusText(routing.Code))
	case unavailable(err):
		s.log.ErrorContext(c.Request().Context(), "request failed", "path", c.Path(), "error", err)
		w.Header().Set("Retry-After", "1")
		ops.Problem(w, http.StatusServiceUnavailable, "unavailable", "the outcome is not known; send the same request again")
	default:
		s.log.ErrorContext(c.Request().Context(), "request failed", "path", c.Path(), "error", err)
		ops.Problem(w, http.StatusInternalServerError, "internal", "the request failed; send it again later")
	}
}

// unavailable: the database is the trouble, or somebody holds a lock for longer than we wait.
func unavailable(err error) bool {
	code := postgres.Code(err)
	return postgres.Down(err) || errors.Is(err, context.DeadlineExceeded) ||
		code == "55P03" || code == "57014" || code == "40001" || code == "40P01"
}
