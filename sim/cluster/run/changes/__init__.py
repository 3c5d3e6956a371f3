"""Instances that come, go and fail while a cluster runs."""
