"""How long a vision tower takes on a GPU: its kernels one by one, and three numbers that stand for their sum."""
