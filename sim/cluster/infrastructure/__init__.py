"""Instances that come and go: how many there should be, where they stand, when they fail, what all of it costs."""
