"""The twin's flags against the server's, as headers give them, and as gauges, steps and traces show them."""
