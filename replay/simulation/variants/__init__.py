"""Several twins and loads side by side: each simulated, their figures in columns, and a page."""
