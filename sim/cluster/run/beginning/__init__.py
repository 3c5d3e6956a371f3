"""A cluster before its first event."""
