"""What differs from one run of the same requests to the next: the server's pace, and where in a step each arrives."""
