"""Tests of how the engine becomes machine code."""
