"""Code of the user's own that a TWIN.yaml names: whether it may run, and what it has to offer."""
