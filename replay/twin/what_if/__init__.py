"""What a change of settings asks, and whether the twin can answer it."""
