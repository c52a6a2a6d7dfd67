"""Digits, learned by clients that choose for themselves when to take part."""
