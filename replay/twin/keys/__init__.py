"""The form of a key of TWIN.yaml, and those of its ``cluster``."""
