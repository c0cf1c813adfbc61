"""An application as seen from outside: one instance over HTTP, the whole group through its broker."""
