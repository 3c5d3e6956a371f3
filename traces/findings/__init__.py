"""What a finished run shows that makes its numbers others than the server's."""
