"""How many times a workload is drawn for a search."""

DEFAULT_SEEDS = 8
"""With fewer, the interval's width is chance; with more, too much of each run is spent on settling."""
MOST_SEEDS = 16
"""This many are drawn where the interval is wide."""
