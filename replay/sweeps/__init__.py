"""``vtwin sweep``: configurations x workloads x seeds, each run a row of one table."""
