"""Tests of traces/importers."""
