"""Tests of traces/tables."""
