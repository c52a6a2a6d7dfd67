"""The networked coordinator and its agents: the algorithm on a real network.

`protocol` is what they say to each other. The coordinator: `rules` and `rounds` decide, a store
(`sqlite_store`, `postgres_store`) keeps, `coordinator` runs the rounds, `device_app` and `operator_app` are
its two faces. A device: `agent` and `lease`. `fleet` plays many devices at once.
"""
