"""What is sent and when, decided before the clock starts."""
