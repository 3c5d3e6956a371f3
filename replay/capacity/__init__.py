"""``vtwin capacity``: the highest rate within an SLO."""
