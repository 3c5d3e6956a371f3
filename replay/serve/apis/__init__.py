"""Requests that are no completions, served: what their bodies ask for, and how their answers read."""
