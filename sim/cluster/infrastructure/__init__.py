"""Instances that come and go: how many there should be, on which nodes, when they fail, and what they cost."""
