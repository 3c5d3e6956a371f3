"""Results of a finished run: attempts, horizon, states over time, outcomes."""
