"""Tests of calibrate/flags."""
