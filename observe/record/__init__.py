"""Recording finished requests during the run."""
