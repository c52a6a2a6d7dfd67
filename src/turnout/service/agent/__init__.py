"""The agent of a device: a base install is enough, and nothing private leaves it."""

from turnout.service.agent.agent import Agent as Agent
