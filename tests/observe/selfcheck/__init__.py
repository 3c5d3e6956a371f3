"""Tests of observe/selfcheck."""
