"""A model's vision tower: what its config.json says of it, and how long it takes to encode an image."""
