"""What becomes of every column, header key and specification key, as data: the rows of docs/reference/coverage.md."""
