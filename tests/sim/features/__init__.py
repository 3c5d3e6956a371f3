"""Tests of sim/features."""
