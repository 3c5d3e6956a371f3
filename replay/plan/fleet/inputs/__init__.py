"""What a fleet is sized for and of: lengths of requests, and profiles of GPUs."""
