"""The result of an observation: summary, goodput, and whether the client limited it."""
