"""Sessions of a trace: when they start, how long their clients think, and the results of each."""
