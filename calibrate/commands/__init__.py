"""``vtwin calibrate`` and its subcommands: what they take, and what each does."""
