"""The twin's flags against the server's: what headers say, what gauges, steps and traces show of them."""
