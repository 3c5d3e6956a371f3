"""Instances that come, go and fail, and clients that try again: from TWIN.yaml and back."""
