"""Changes of settings, and whether the twin can answer them."""
