"""Tests of replay/search."""
