"""The Ray engine: clients in shards on a cluster."""
