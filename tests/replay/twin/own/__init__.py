"""Tests of replay/twin/own."""
