"""Files that a fit leaves behind."""
