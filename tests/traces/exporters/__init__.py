"""Tests of traces/exporters."""
