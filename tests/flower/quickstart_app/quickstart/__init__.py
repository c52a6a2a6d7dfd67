"""An app in the shape of Flower's quickstarts: twenty clients fit one line together."""
