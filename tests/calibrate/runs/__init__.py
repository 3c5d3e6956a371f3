"""Tests of calibrate/runs."""
