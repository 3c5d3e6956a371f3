"""Tests of replay/twin/start."""
