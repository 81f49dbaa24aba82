// Go's net/http: prints the host of each request.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("HOST", r.Host)
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "served\n")
	}
	server := http.Server{Addr: "127.0.0.1:" + os.Args[1], Handler: http.HandlerFunc(handler)}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
}
