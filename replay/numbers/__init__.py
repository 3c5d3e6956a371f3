"""Small numbers that all rooms use: ranges of arguments, distributions, an interval of a mean."""
