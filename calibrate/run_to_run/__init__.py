"""Differences between runs of the same requests: the server's pace, and the place in a step of each arrival."""
