"""Tests of replay/sweep."""
