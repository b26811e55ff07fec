// Points gives customers points for what they pay. It is the smallest complete consumer, and the one to copy.
package main

import (
	"example.com/paycast/services/points/internal/points"
	"example.com/paycast/shared/service"
)

func main() {
	service.Main("points",
		service.Command{Name: "serve", Help: "consume events and answer the API", Run: points.Serve},
		service.Command{Name: "migrate", Help: "bring the database up to date", Run: points.Migrate},
	)
}
