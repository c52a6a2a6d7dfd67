"""What the operator sees and does: the page, metrics, the password."""
