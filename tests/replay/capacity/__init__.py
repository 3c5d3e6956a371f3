"""Tests of replay/capacity."""
