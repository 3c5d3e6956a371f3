"""What one response says, read after it has ended. Pure."""
