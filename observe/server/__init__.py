"""The server's own information: its API, metrics and log."""
