"""From a wish to settings: which mechanism, which parameters, and what to expect of them."""
