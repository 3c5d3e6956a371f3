"""What will be sent and when, decided before the clock starts."""
