// Program answers /readyz after it has been asked three times, writes its environment, and ends with exit code 3 when it
// is sent SIGTERM.
package main

import (
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
)

func main() {
	fmt.Println("environment:", strings.Join(os.Environ(), " "))
	var asked atomic.Int64
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	go func() { panic(http.ListenAndServe(os.Args[1], nil)) }()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	<-stop
	os.Exit(3)
}
