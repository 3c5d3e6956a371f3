"""Reading a response after it has ended. Pure."""
