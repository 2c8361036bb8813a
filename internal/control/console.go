package control

import (
	"embed"
	"net/http"
	"path"
)

// The console is one page, its script and its style; it reads the same API as everybody and fetches nothing from
// elsewhere.
//
//go:embed console
var consoleFiles embed.FS

func (s *Server) serveConsole(mux *http.ServeMux) {
	for url, file := range map[string]string{"/{$}": "index.html", "/console.js": "console.js", "/console.css": "console.css", "/icon.svg": "icon.svg"} {
		mux.HandleFunc("GET "+url, func(w http.ResponseWriter, r *http.Request) {
			http.ServeFileFS(w, r, consoleFiles, path.Join("console", file))
		})
	}
}
