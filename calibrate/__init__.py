"""Pairs two traces, states their errors with intervals, fits the twin's coefficients, and reports."""
