"""Recorded requests as workloads: sent again as they were, scaled, or drawn under another load."""
