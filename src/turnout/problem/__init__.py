"""What is minimised, and the exact answer."""
