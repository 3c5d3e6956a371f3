"""Requests that are not completions: what they send, and what their answers say in the words of a completion."""
