"""A running cluster: engines, the path of a request, and the loop over events."""
