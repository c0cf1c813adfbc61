"""Bytes to a broker and back: sockets, TLS, tokens, and the loop that drives them."""
