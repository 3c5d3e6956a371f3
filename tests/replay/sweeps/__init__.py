"""Tests of replay/sweeps."""
