"""The paper, reproduced: one module for each figure, the claims, and the page that tells it all."""
