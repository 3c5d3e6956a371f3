"""How long a step takes: the sums over its requests, and the duration that a latency model gives it."""
