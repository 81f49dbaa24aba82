// Go's net/http: prints the host of each request, and says which path it takes for a denied one.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"strings"
)

func main() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("HOST", r.Host)
		io.Copy(io.Discard, r.Body)
		if strings.HasPrefix(path.Clean("/"+r.URL.Path)+"/", "/denied/") {
			io.WriteString(w, "denied\n")
			return
		}
		io.WriteString(w, "served\n")
	}
	server := http.Server{Addr: "127.0.0.1:" + os.Args[1], Handler: http.HandlerFunc(handler)}
	fmt.Fprintln(os.Stderr, server.ListenAndServe())
}
