"""``vtwin calibrate`` and its subcommands: their options, and what each does."""
