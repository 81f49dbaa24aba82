// Go's net/http with HTTP/1.1 and HTTP/2: writes what a handler takes each request for. Arguments: the port, the
// certificate and the key.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
)

func main() {
	handler := func(w http.ResponseWriter, r *http.Request) {
		seen, _ := json.Marshal(map[string]string{
			"number": r.Header.Get("X-Head"), "method": r.Method, "host": r.Host, "path": r.URL.Path,
			"authorization": r.Header.Get("Authorization"),
		})
		fmt.Println(string(seen))
		io.Copy(io.Discard, r.Body)
		io.WriteString(w, "served\n")
	}
	server := http.Server{Addr: "127.0.0.1:" + os.Args[1], Handler: http.HandlerFunc(handler)}
	fmt.Fprintln(os.Stderr, server.ListenAndServeTLS(os.Args[2], os.Args[3]))
}
