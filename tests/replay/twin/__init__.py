"""Tests of replay/twin."""
