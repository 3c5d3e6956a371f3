"""A trace's files: read, checked, written, and what a new one would replace."""
