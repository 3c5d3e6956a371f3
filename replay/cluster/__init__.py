"""A trace through several servers behind a router."""
