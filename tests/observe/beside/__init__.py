"""Tests of observe/server."""
