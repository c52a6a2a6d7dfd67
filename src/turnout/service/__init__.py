"""The networked coordinator and its agents: the algorithm on a real network.

`protocol` is what they say to each other. The coordinator: `rules` and `rounds` decide, `stores` keep,
`coordinator` runs the rounds and is the face that devices see, `operator` is the other face, and both listen by
means of `listening`. A device: `agent`. `fleet` plays many devices at once.
"""
