"""Tests of replay/tuning."""
