"""The Numba engine: compiled loops, on several threads."""
