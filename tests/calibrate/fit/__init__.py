"""Tests of calibrate/fit."""
