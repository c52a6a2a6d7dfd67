"""Engines: the same decisions, made at different speeds."""
