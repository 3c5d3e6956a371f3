"""Tests of replay/gpus."""
