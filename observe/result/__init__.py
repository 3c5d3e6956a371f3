"""What an observation comes to: summary, goodput, and whether the client limited it."""
