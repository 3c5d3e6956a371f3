"""Which instance gets a request: decisions over a view of the fleet, compiled, with no consumed randomness."""
