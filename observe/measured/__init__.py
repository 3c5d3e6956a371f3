"""A page of what was measured: one run in detail, or several loads of one server side by side."""
