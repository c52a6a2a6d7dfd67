"""The durable client: reserve, toss, store, report. What a network agent and a Flower client share.

It needs neither simulation nor theory: a small device has the base install only.
"""
