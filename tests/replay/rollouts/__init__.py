"""Rollouts against servers by hand."""
