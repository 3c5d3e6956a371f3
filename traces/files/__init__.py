"""A trace's files: reading, checking, writing, and which files a new trace would replace."""
