"""Tests of calibrate/fit/objective."""
