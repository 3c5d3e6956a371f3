"""Tests of replay/variants."""
