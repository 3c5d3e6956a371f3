"""What a model's config.json says of its vision tower."""
