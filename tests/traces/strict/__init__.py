"""Tests of traces/strict."""
