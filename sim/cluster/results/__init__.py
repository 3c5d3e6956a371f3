"""What is made of a world whose run is over: attempts, horizon, looks, outcomes."""
