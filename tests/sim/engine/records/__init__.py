"""Tests of sim/engine/records."""
