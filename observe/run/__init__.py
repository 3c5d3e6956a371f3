"""Sending a plan by the clock, and showing its progress."""
