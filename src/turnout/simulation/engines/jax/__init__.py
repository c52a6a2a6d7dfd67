"""The JAX engine: on a GPU, on several devices, or on this machine."""
