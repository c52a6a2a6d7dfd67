"""The coordinator: it runs the rounds, and what devices talk to."""
