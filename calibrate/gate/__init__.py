"""Limits and the verdict on them. Pure: no files, no clock."""
