"""Tests of traces/importers/logs."""
