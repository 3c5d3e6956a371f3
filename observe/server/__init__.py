"""What the server says about itself: its API, metrics and log."""
