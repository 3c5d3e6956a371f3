"""One table of measured servers in which every tool can be read: ``make scoreboard``."""
