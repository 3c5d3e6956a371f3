"""Tests of observe/plan."""
