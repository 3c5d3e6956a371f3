"""The terminal: what a command prints and takes, and what it says when something is wrong."""
