"""Tests of observe/response."""
