"""Tests of calibrate/compare."""
