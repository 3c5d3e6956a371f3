"""``vtwin observe --find-capacity``: the highest rate at which a live server is within an SLO."""
