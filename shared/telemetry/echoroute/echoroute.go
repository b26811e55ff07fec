// Package echoroute tells telemetry which route of an echo server a request has taken. It is apart from package telemetry
// so that programs without echo do not link it.
package echoroute

import "github.com/labstack/echo/v4"

// Name is a middleware for echo.Use: it notes the route, such as /orders/:no, where ServeMux would.
func Name(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Request().Pattern = c.Path()
		return next(c)
	}
}
