"""The network thread, which drives the request managers and never runs the application's code. Used by ``api`` only."""
