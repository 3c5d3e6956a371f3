"""Tests of replay/serve."""
