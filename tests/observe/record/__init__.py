"""Tests of observe/record."""
