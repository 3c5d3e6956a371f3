"""Which instance gets a request: compiled decisions over a view of the fleet, without a random state."""
