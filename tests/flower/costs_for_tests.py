"""A cost on an import path."""


def battery(device):
    return 7.0
