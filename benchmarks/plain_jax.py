"""The algorithm as a JAX user writes it: one jitted loop, 32 bits, jax.random, jnp.select over the four groups."""

import jax
import jax.numpy as jnp


@jax.jit
def loop(key, a, b, group, rounds, coin, gain, initial):
    clients = len(a)
    capacity = clients / 2

    def one_round(k, carry):
        key, participations, turnout, signal = carry
        key, wants, coins = jax.random.split(key, 3)
        x = participations / k
        slope = jnp.select(
            [group == 0, group == 1, group == 2, group == 3],
            [2 * a * x, 2 * a * x**3, 4 / 3 * a * x**3 + 6 * b * x**5, 2 * b * x],
        )
        intent = jnp.minimum(1.0, signal * x / slope)
        participates = (jax.random.uniform(wants, (clients,)) < intent) | (jax.random.uniform(coins, (clients,)) < coin)
        signal = jnp.maximum(0.0, signal - gain * (turnout - capacity))
        return key, participations + participates, participates.sum().astype(jnp.float32), signal

    start = key, jnp.ones(clients), jnp.float32(clients), jnp.float32(initial)
    return jax.lax.fori_loop(1, rounds + 1, one_round, start)[3]


def run(clients, rounds, beta, gain, initial, seed=0):
    """Returns the last signal."""
    key, first, second = jax.random.split(jax.random.key(seed), 3)
    a, b = (jax.random.uniform(part, (clients,), minval=0.0, maxval=40.0) for part in (first, second))
    group = 4 * jnp.arange(clients) // clients
    return float(loop(key, a, b, group, rounds, beta / 2 * jnp.exp(-beta), gain, initial))
