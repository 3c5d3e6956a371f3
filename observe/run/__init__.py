"""Sending a plan against the clock, and showing how it goes."""
