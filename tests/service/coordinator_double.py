"""A coordinator's double that can be told to misbehave, a fleet that plays with it, and the same by hand."""

import asyncio
import json
import re
from collections import defaultdict

import numpy as np

from turnout import Averaging, PaperCoin, paper_population
from turnout.algorithm import ClientState, SeededCoins, client_step
from turnout.problem import ENROLMENT
from turnout.service.load_test.load_test import Fleet
from turnout.service.protocol import Offer, Welcome

DEVICES, SEED = 24, 5
CODES = [f"code-{number:03d}" for number in range(DEVICES)]
COSTS = paper_population(0, DEVICES).costs
PRIOR = (0.5, 10.0)


def signal_of(round):
    return 1.0 + 0.1 * (round % 7)


class Double:
    """Closes a round when all expected devices have reported; what it answers can be changed by `odd`.

    `odd(device, round, times)` returns None, or a whole answer (status, headers, value), or "drop", for a report that
    has arrived `times` times.
    """

    def __init__(self, mechanism=None, by="bit", remember=None, odd=None, counts=lambda device, round: True):
        self.mechanism, self.by, self.remember = mechanism or PaperCoin(3.5), by, remember
        self.odd, self.counts = odd or (lambda *_: None), counts
        self.round, self.expected, self.tls = 0, DEVICES, None
        self.codes, self.bits, self.arrivals = {}, defaultdict(dict), defaultdict(list)
        self.enrolments, self.asked, self.refuse = [], [], lambda code, times: None
        self.connections, self.most_at_once, self.enrolling = 0, 0, 0

    async def __aenter__(self):
        self.closed = asyncio.Condition()
        self.writers = set()
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, ssl=self.tls)
        where = "https://localhost" if self.tls else "http://127.0.0.1"
        self.url = f"{where}:{self.server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *error):
        self.server.close()
        for writer in self.writers:
            writer.transport.abort()
        await self.server.wait_closed()
        await asyncio.sleep(0.02)

    async def serve(self, reader, writer):
        self.connections += 1
        self.writers.add(writer)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"Content-Length: (\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                token = re.search(rb"Bearer ([\w-]+)", head)
                path = head.split()[1].decode()
                reply = await self.reply(path, token and token[1].decode(), json.loads(body or b"{}"))
                if reply == "drop":
                    break
                status, headers, value = reply
                text = value if isinstance(value, bytes) else json.dumps(value).encode()
                lines = [f"HTTP/1.1 {status} X", f"content-length: {len(text)}", *headers, "", ""]
                raw = "\r\n".join(lines).encode() + text
                writer.write(raw[:30])  # an answer may come in pieces
                await writer.drain()
                writer.write(raw[30:])
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self.writers.discard(writer)
            writer.transport.abort()

    async def reply(self, path, token, value):
        if path == "/v1/enrol":
            return await self.enrol(**value)
        device = int(token.rpartition("-")[2])
        if path == "/v1/round":
            self.asked.append((device, self.round))
            return 200, [], {"run": "double"} | self.offer()
        return await self.report(device, **value)

    async def enrol(self, code, nonce):
        times = sum(code == known for known, _ in self.enrolments)
        self.enrolments.append((code, nonce))
        self.enrolling += 1
        self.most_at_once = max(self.most_at_once, self.enrolling)
        await asyncio.sleep(0)
        self.enrolling -= 1
        if refused := self.refuse(code, times):
            return refused
        device = CODES.index(code)
        token = f"token-of-a-test-device-{device}"
        first = Offer(self.round, signal_of(self.round))
        mechanism = self.mechanism.settings()
        return 201, [], Welcome("double", token, 1, *PRIOR, self.remember, self.by, mechanism, first).body()

    def offer(self):
        return {"round": self.round, "signal": signal_of(self.round)}

    async def report(self, device, run, round, participates):
        assert run == "double"
        self.arrivals[device, round].append(participates)
        if (odd := self.odd(device, round, len(self.arrivals[device, round]))) is not None:
            return odd
        late = round < self.round and device not in self.bits[round]
        if round == self.round:
            self.bits[round].setdefault(device, participates)
        async with self.closed:
            if len(self.bits[self.round]) >= self.expected and round == self.round:
                self.round += 1
                self.closed.notify_all()
            await self.closed.wait_for(lambda: self.round > round)
        counted = not late and self.counts(device, round)
        outcome = "closed" if late else "accepted"
        lease = 3.0 + device / 7  # differs between devices, as a real one does
        return 200, [], {"round": round, "outcome": outcome, "counted": counted, "lease": lease, "next": self.offer()}


def play(double, rounds=6, **options):
    """The fleet's record after so many rounds."""

    async def work():
        async with double:
            fleet = Fleet(double.url, COSTS, CODES, **({"seed": SEED} | options))
            return await asyncio.wait_for(fleet.run(rounds), 20)

    return asyncio.run(work())


COIN, ALL = PaperCoin(3.5), Averaging()


def by_hand(rounds, mechanism=COIN, averaging=ALL, counts=lambda device, round: True, away=()):
    """Each device by itself, a population of one, round by round; `away` holds (device, round)."""
    coins, found = SeededCoins(SEED), np.zeros((rounds, DEVICES), bool)
    for device in range(DEVICES):
        released = mechanism.enrol(COSTS[device], coins.uniform([device], 0, ENROLMENT))
        state = ClientState(np.array([PRIOR[0] * PRIOR[1]]), np.array([PRIOR[1]]), released)
        for round in range(rounds):
            uniform = coins.uniform([device], round)
            if (device, round) in away:
                state = state.after(np.zeros(1), averaging)
                continue
            after, bits, *_ = client_step(
                COSTS[device], mechanism, state, signal_of(round), uniform, averaging=averaging
            )
            found[round, device] = bits[0]
            moves = counts(device, round) or not averaging.takes_back
            state = after if moves else state.after(np.zeros(1), averaging)
    return found
