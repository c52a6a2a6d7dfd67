"""A small app for a real deployment: what it learns does not matter, who comes does."""
