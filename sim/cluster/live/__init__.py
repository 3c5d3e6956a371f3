"""A cluster that is fed while it runs."""
