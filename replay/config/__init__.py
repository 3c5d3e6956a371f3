"""What `vtwin config` does: a twin shown, or made to start from."""
