"""The Ray engine: the identical result whatever the number of shards, and whatever is lost on the way.

Most of it runs on a cluster that is only pretended, where shards are lost at random; the rest on two Ray nodes.
"""

import dataclasses
import itertools
import os
import pickle
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

from conformance.populations import mechanisms, options, problems
from conformance.test_engines import assert_identical
from problem.test_costs import Exponential
from turnout import Averaging, IntegralController, Keep, PaperCoin, Problem, SeededCoins, paper_population, simulate
from turnout.problem import drawn_paper_population
from turnout.simulation.engines.engine import RayOptions
from turnout.simulation.engines.ray import engine as ray_engine
from turnout.simulation.engines.ray.cluster import Lost, RayCluster, ShardLost, Size
from turnout.simulation.engines.ray.engine import RayEngine, _cut
from turnout.simulation.engines.ray.shard import Shard
from turnout.simulation.loop import run_rounds
from turnout.simulation.recording import CHUNK
from turnout.simulation.setup import set_up

SHARDS = (1, 2, 3, 5)
CLIENTS = 804
ROUNDS = 100
KEEP = Keep(every=7, histogram=8, averages=[803, 0, 3], distance_to=np.linspace(0, 1, CLIENTS))
SERVER = IntegralController(9.0 / CLIENTS, 2.0)


class Pretended:
    """A cluster within this process; every so many calls a shard is lost, in turn before and after it is done."""

    cores = 3
    where = "nowhere"

    def __init__(self, every=0):
        self.every, self.answers, self.losses, self.asked = every, 0, 0, []

    def check_fits(self, shards, size):
        pass

    def start(self, clients, participations, rounds):
        sent = pickle.loads(pickle.dumps((clients, participations, rounds)))
        return [Shard(*sent)]

    def await_start(self, handles):
        pass

    def ask(self, handle, method, *arguments):
        self.asked.append(method)
        return handle, method, pickle.loads(pickle.dumps(arguments))

    def answer(self, promise):
        handle, method, arguments = promise
        self.answers += 1
        lost = self.every and self.answers % self.every == 0
        if not lost or self.losses % 2:
            result = getattr(handle[0], method)(*arguments)
        if lost:
            self.losses += 1
            raise Lost("pretended")
        return result

    def stop(self, handle):
        handle.clear()

    def leave(self):
        pass


def staged(problem, mechanism, rounds=ROUNDS, keep=KEEP, *, server=SERVER, seed=9, start=None, **more):
    given = {name: more.get(name) for name in ("schedule", "averaging", "noise")}
    return set_up(problem, mechanism, server, rounds, seed, start, keep=keep, **given)


def sharded(setup, shards, cluster=None, *, snapshot_every=11, progress=None):
    engine = RayEngine(setup.clients, RayOptions(shards, snapshot_every), cluster)
    if progress:
        progress = progress(engine)
    run_rounds(engine, setup, progress)
    return setup.trajectory("ray", engine.where)


def plain(problem, mechanism, rounds=ROUNDS, keep=KEEP, *, server=SERVER, seed=9, **more):
    return simulate(problem, mechanism, server, rounds, seed=seed, engine="numpy", keep=keep, **more)


# On a pretended cluster


PAIRS = [(mechanism, option) for mechanism in mechanisms(CLIENTS) for option in ("plain", "movement")]
PAIRS += [
    (mechanism, option)
    for mechanism in ("paper-coin by client", "memoized")
    for option in options(CLIENTS)
    if option not in ("plain", "movement")
]


@pytest.mark.deployment
@pytest.mark.parametrize(("mechanism", "option"), PAIRS)
def test_every_mechanism_and_every_option_with_losses(mechanism, option):
    given, more, problem = mechanisms(CLIENTS)[mechanism], options(CLIENTS)[option], problems(CLIENTS)["paper"]
    shards = SHARDS[PAIRS.index((mechanism, option)) % 4]
    cluster = Pretended(every=19)
    found = sharded(staged(problem, given, **more), shards, cluster)
    assert cluster.losses > 0
    assert_identical(found, plain(problem, given, **more))


@pytest.mark.filterwarnings("ignore:the turnout swings")  # bits are compared, not turnouts
@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("family", problems(CLIENTS))
def test_every_family_of_costs(family, shards):
    problem, mechanism = problems(CLIENTS)[family], PaperCoin(np.linspace(1.0, 4.0, CLIENTS))
    assert_identical(sharded(staged(problem, mechanism, 30), shards, Pretended()), plain(problem, mechanism, 30))


@pytest.mark.parametrize("lag", [0, 1])
def test_a_pass_is_two_rounds_where_the_lag_allows(lag):
    problem, server = problems(CLIENTS)["paper"], IntegralController(9.0 / CLIENTS, 2.0, lag)
    cluster = Pretended()
    found = sharded(staged(problem, PaperCoin(3.5), 101, Keep(every=1000), server=server), 1, cluster)
    assert_identical(found, plain(problem, PaperCoin(3.5), 101, Keep(every=1000), server=server))
    assert cluster.asked.count("draw") == (50 if lag else 100)  # round 0 is the start


@pytest.mark.parametrize("shards", SHARDS)
def test_a_continued_run(shards):
    problem, more = problems(CLIENTS)["paper"], options(CLIENTS)["movement"]
    whole = plain(problem, PaperCoin(3.5), **more)
    first = sharded(staged(problem, PaperCoin(3.5), 75, **more), shards, Pretended(every=23))
    rest = staged(problem, PaperCoin(3.5), ROUNDS - 75, start=first)
    assert_identical(sharded(rest, 6 - shards, Pretended(every=23)), whole)


def test_costs_of_ones_own_and_drawn_ones():
    rates = np.random.default_rng(0).uniform(0.5, 3.0, CLIENTS)
    for problem in (Problem(Exponential(rates), 300), drawn_paper_population(4, CLIENTS).problem(300)):
        assert_identical(
            sharded(staged(problem, PaperCoin(3.5)), 3, Pretended(every=23)), plain(problem, PaperCoin(3.5))
        )


def test_many_clients_are_measured_where_they_are(monkeypatch):
    """Shards of whole chunks send sums, in the bits of a single machine; no history comes back."""
    monkeypatch.setattr(ray_engine, "_MEASURED_APART", 1)
    clients = 3 * CHUNK + 4
    problem = paper_population(1, clients).problem(clients / 3)
    keep = Keep(every=2, histogram=5, averages=[clients - 1, 7, CHUNK], distance_to=np.full(clients, 0.3), state=False)
    server, cluster = IntegralController(9.0 / clients, 2.0), Pretended(every=7)
    setup = staged(problem, PaperCoin(3.5), 9, keep, server=server)
    assert_identical(
        sharded(setup, 2, cluster, snapshot_every=100), plain(problem, PaperCoin(3.5), 9, keep, server=server)
    )
    assert "histories" not in cluster.asked
    assert cluster.losses > 0


@pytest.mark.parametrize(("clients", "shards"), [(4, 5), (22, 3), (804, 5), (40 * CHUNK + 4, 4), (40 * CHUNK, 7)])
def test_cuts(clients, shards):
    pieces = _cut(clients, shards)
    assert pieces[0][0] == 0
    assert pieces[-1][1] == clients
    assert all(one[1] == other[0] for one, other in itertools.pairwise(pieces))
    assert all(first % (CHUNK if clients == 40 * CHUNK + 4 else 4) == 0 for first, _ in pieces)
    sizes = [stop - first for first, stop in pieces]
    assert max(sizes) <= min(sizes) + max(8, clients / shards / 4)


def test_a_shard_of_the_coins():
    whole = SeededCoins(5).words(np.arange(100), 3)
    np.testing.assert_array_equal(SeededCoins(5, first=40).words(np.arange(60), 3), whole[40:])
    with pytest.raises(ValueError, match="multiple of 4"):
        SeededCoins(5, first=2)


def test_a_forgotten_command_is_noticed(monkeypatch):
    """The sabotaged twin: a shard made again without the last pass gives another result."""
    again = RayEngine._again

    def forgetful(engine, place, method, loss):
        kept, engine._log = engine._log, engine._log[:-2] + engine._log[-1:]
        result = again(engine, place, method, loss)
        engine._log = kept
        return result

    monkeypatch.setattr(RayEngine, "_again", forgetful)
    problem = problems(CLIENTS)["paper"]
    found = sharded(staged(problem, PaperCoin(3.5)), 3, Pretended(every=13))
    with pytest.raises(AssertionError):
        assert_identical(found, plain(problem, PaperCoin(3.5)))


def test_a_shard_that_cannot_be_kept_is_given_up():
    with pytest.raises(ShardLost, match="5 times in a row"):
        sharded(staged(problems(CLIENTS)["paper"], PaperCoin(3.5)), 2, Pretended(every=1))


# On two Ray nodes


def processes(session):
    """Those that belong to a session of Ray."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if session.encode() in path.read_bytes():
                found.append(path.parent.name)
        except OSError:  # it has just ended
            continue
    return found


def assert_all_end(session):
    until = time.monotonic() + 20
    while processes(session) and time.monotonic() < until:
        time.sleep(0.1)
    assert processes(session) == []


@pytest.fixture(scope="module")
def two_nodes():
    """A Ray cluster of two nodes on this machine, by the loopback only; all its processes end with it."""
    ray = pytest.importorskip("ray")
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setattr(ray_constants, "ENABLE_RAY_CLUSTER", False)  # or Ray leaves the loopback for another address
        usual = {"num_cpus": 3, "object_store_memory": 2**27, "memory": 2**29, "node_ip_address": "127.0.0.1"}
        quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 500, "health_check_failure_threshold": 4}
        cluster = Cluster(
            initialize_head=True, head_node_args={**usual, "include_dashboard": False, "_system_config": quick}
        )
        cluster.second = cluster.add_node(**usual)  # type: ignore[attr-defined]
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        session = Path(cluster.head_node.get_session_dir_path()).name  # type: ignore[attr-defined]
        assert processes(session)
        yield cluster
        ray.shutdown()
        cluster.shutdown()
    assert_all_end(session)


def case():
    """Weights, joins, leaves, absences, own parameters and forgetting, all at once."""
    moves = dataclasses.replace(options(CLIENTS)["movement"]["schedule"], capacity={70: 2.0 * CLIENTS})
    more = {"schedule": moves, "averaging": Averaging(remember=50)}
    problem = problems(CLIENTS)["weighted"]
    return problem, PaperCoin(np.linspace(1.0, 4.0, CLIENTS)), more, IntegralController(1.5 / CLIENTS, 2.0)


@pytest.fixture(scope="module")
def reference():
    problem, mechanism, more, server = case()
    return plain(problem, mechanism, server=server, **more)


def on_ray(shards, **further):
    problem, mechanism, more, server = case()
    return sharded(staged(problem, mechanism, server=server, **more), shards, **further)


SOME_SHARDS = [pytest.param(shards, marks=pytest.mark.deployment) for shards in SHARDS]


@pytest.mark.parametrize("shards", SOME_SHARDS)
def test_the_number_of_shards_changes_nothing(two_nodes, reference, shards):
    problem, mechanism, more, server = case()
    options = RayOptions(shards, snapshot_every=30)
    found = simulate(problem, mechanism, server, ROUNDS, seed=9, keep=KEEP, engine=options, **more)
    assert_identical(found, reference)
    how_many = "1 shard" if shards == 1 else f"{shards} shards"
    words = f"ray, as asked ({how_many} on a Ray cluster of 2 nodes, already connected)"
    assert found.provenance["engine_reason"] == words


def hurting(hurt, losses):
    """Do harm once, in the middle of the run; notes what was made again."""

    def progress(engine):
        again, harmed = engine._again, []

        def noted(*arguments):
            losses.append(arguments)
            return again(*arguments)

        def go_on(done, rounds):
            if done >= rounds // 2 and not harmed:
                harmed.append(done)
                hurt(engine)

        engine._again = noted
        return go_on

    return progress


@pytest.mark.deployment
def test_an_actor_is_killed(two_nodes, reference):
    import ray

    losses = []
    assert_identical(on_ray(2, progress=hurting(lambda engine: ray.kill(engine._places[1].handle), losses)), reference)
    assert len(losses) == 1


def test_too_little_room_is_refused(two_nodes):
    with pytest.raises(ValueError, match="cluster must be of one free core a shard, got 7 shards and 6 free cores"):
        on_ray(7)
    cluster = RayCluster(Size(4, 0, 0))
    assert cluster.cores == 6
    with pytest.raises(
        ValueError, match=r"of 22\.4 GiB of object store.* 1,000,000,000 clients, got 0\.2 GiB free on 2"
    ):
        cluster.check_fits(2, Size(10**9, 24 * 10**9, 8 * 10**9))
    with pytest.raises(ValueError, match=r"of 30\.7 GiB of memory, for histories"):
        cluster.check_fits(2, Size(10**9, 0, 8 * 10**9))


@pytest.mark.deployment
def test_a_node_is_lost(two_nodes, reference):
    """Its actors go to the node that is left; there is one core too few for a core each."""
    import ray

    losses = []

    def hurt(engine):
        two_nodes.remove_node(two_nodes.second, allow_graceful=False)
        until = time.monotonic() + 60
        while sum(node["Alive"] for node in ray.nodes()) > 1:  # its actors answer until it is noticed
            assert time.monotonic() < until
            time.sleep(0.05)

    assert_identical(on_ray(4, progress=hurting(hurt, losses)), reference)
    assert losses


@pytest.mark.deployment
def test_a_cluster_started_here_is_stopped():
    pytest.importorskip("ray")
    code = """
        import ray
        from turnout import IntegralController, PaperCoin, paper_population
        from turnout.simulation.engines.engine import RayOptions
        from turnout.simulation.engines.ray.engine import RayEngine
        from turnout.simulation.loop import run_rounds
        from turnout.simulation.setup import set_up
        problem, server = paper_population(0).problem(600), IntegralController(0.0075, 0.35)
        setup = set_up(problem, PaperCoin(3.5), server, 50, 0, None, None, None, None)
        engine = RayEngine(setup.clients, RayOptions(1))
        session = ray._private.worker._global_node.get_session_dir_path()
        run_rounds(engine, setup)
        assert not ray.is_initialized()
        print(session, setup.log.participants.sum(), engine.where, sep="|")
    """
    settings = os.environ | {"RAY_ADDRESS": "local", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=settings, check=False
    )
    assert done.returncode == 0, done.stderr
    session, total, where = done.stdout.splitlines()[-1].split("|")
    run = simulate(paper_population(0).problem(600), PaperCoin(3.5), IntegralController(0.0075, 0.35), 50)
    assert int(total) == run.participants.sum()
    assert where == "1 shard on a Ray cluster of 1 node, started here"
    assert_all_end(Path(session).name)
