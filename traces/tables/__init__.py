"""A trace's tables on disk and in memory, and their rules."""
