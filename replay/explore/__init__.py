"""``vtwin explore``: a page on this machine on which settings are turned, and answers looked at."""
