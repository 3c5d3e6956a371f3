"""Tests of observe/processes."""
