"""What came out on public data: `python -m tests.validation` prints the tables of docs/validation.md."""
