"""Tests of calibrate/report."""
