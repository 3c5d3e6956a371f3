"""The user's own code that a TWIN.yaml names: whether it may run, and how it is loaded."""
