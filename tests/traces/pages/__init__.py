"""Tests of traces/pages."""
