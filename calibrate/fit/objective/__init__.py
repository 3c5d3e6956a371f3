"""The objective of a fit: prepared observed traces, simulated latencies against theirs, and priors."""
