"""The terminal: a command's output, its options, and its error messages."""
