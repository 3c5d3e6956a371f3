"""Tests of calibrate/gate."""
