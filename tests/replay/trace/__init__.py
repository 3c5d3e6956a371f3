"""Tests of replay/trace."""
