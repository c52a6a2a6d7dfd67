"""HTTP with limits: listeners that a slow, large or hostile client cannot hurt."""
