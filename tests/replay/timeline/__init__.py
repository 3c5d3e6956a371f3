"""Tests of replay/timeline."""
