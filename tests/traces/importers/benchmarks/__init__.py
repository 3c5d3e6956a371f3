"""Tests of traces/importers/benchmarks."""
