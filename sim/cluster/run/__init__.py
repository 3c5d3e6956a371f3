"""A cluster under way: engines, the way of a request, and the loop over events."""
