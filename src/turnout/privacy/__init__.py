"""What a report gives away."""
