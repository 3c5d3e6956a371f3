"""A trace's tables on disk and in memory, and what they must obey."""
