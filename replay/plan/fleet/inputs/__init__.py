"""What a fleet is sized for and of: lengths of requests, and profiles of GPUs."""

OUTPUT_FRAC = 0.2
"""Share of a total length that is output, where a file says only totals: the fleet simulator's 80 to 20."""
