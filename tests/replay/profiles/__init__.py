"""Fitted twins that travel: listed, shown, and asked how far they reach."""
