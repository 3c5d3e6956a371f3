"""Tests of observe/result."""
