"""Tests of observe/capacity."""
