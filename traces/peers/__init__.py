"""What other tools call things that vtwin has under a name of its own."""
