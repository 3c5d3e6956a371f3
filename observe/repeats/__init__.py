"""Loads that are observed several times: the mean of each figure with its interval, and how far one run lies off."""
