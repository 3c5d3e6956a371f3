"""Whether a load is within an SLO, or too much for the server, by the answers of a run that may be under way."""
