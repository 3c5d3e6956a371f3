"""An engine run in one call, and looked at on the way."""
