"""Run the algorithm: the same decision for every client, on the engine that suits."""
