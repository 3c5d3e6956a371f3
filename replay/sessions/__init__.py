"""Sessions of a trace: when they start and how long their clients think, and what came of each."""
