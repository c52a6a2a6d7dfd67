"""What can be said without simulating."""
