"""Tests of traces/files."""
