"""Tests of observe/run."""
