"""Tests of traces/importers/simulators."""
