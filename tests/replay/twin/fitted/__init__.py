"""Tests of replay/twin/fitted."""
