"""Whether a measurement is the server's: which latencies were measured at all, and what a run shows beside them."""
