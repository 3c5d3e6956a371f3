"""Tests of replay/plan."""
