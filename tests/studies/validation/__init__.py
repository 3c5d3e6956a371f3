"""What came out on public data: `python -m tests.studies.validation` prints the tables of docs/validation.md."""
