"""Instances that come, go and fail, and clients that retry: from TWIN.yaml and back."""
