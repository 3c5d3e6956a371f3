"""Tests of replay/tune."""
