"""What other tools call things that vtwin has by another name: flags, commands, values."""
