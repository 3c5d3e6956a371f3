"""Tests of calibrate/run_to_run."""
