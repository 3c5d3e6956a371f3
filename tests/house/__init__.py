"""The house itself: what the core is, and how large each room."""
