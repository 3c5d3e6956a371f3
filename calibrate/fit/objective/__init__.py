"""The objective of a fit: observed traces made ready, simulated latencies against theirs, and priors."""
