"""A SuperLink of our own that simulates its nodes with Ray: what `flwr run` uses on one machine."""

import contextlib
import os
import signal
import subprocess
from pathlib import Path

from flower.deployment import TOOLS, Deployment, free_port


class SimulationLink(Deployment):
    """Starts in a folder, ends with everything it started; offline, and without another copy of the environment."""

    def __init__(self, folder, nodes):
        super().__init__(folder, nodes)
        self._environment |= {"RAY_USAGE_STATS_ENABLED": "0", "OPENBLAS_NUM_THREADS": "1"}

    def __enter__(self):
        (self.folder / "home").mkdir()
        options = f"options.num-supernodes = {self.nodes}\noptions.backend.init-args.num-cpus = {os.cpu_count() or 1}\n"
        connection = f"address = '127.0.0.1:{self.port}'\ninsecure = true\n{options}"
        header = "[superlink]\ndefault = 'test'\n\n[superlink.test]\n"
        (self.folder / "home" / "config.toml").write_text(header + connection)
        link = ["flower-superlink", "--insecure", "--simulation", "--isolation", "subprocess", "--host", "127.0.0.1"]
        link += ["--port", str(self.port), "--control-api-address", f"127.0.0.1:{free_port()}"]
        try:
            self._start("superlink", [*link, "--disable-runtime-dependency-installation"])
            self._wait_for_port(self.port, 60)
        except BaseException:
            self.__exit__()
            raise
        return self

    def run(self, app, config, timeout=240):
        """`flwr run` of an app to its end; what it logged."""
        done = subprocess.run(
            [str(Path(TOOLS) / "flwr"), "run", ".", "test", "--stream", "--run-config", config],
            cwd=app,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert done.returncode == 0, done.stdout + done.stderr + self.log("superlink")
        return done.stdout + done.stderr


class LocalSuperLink(Deployment):
    """A machine on which `flwr` has never run: its first `flwr run` starts a SuperLink, which is ended here."""

    def __init__(self, folder):
        super().__init__(folder)
        own = {"FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(self.port), "FLWR_LOCAL_CONTROL_API_PORT": str(free_port())}
        self._environment |= own | {"RAY_USAGE_STATS_ENABLED": "0", "OPENBLAS_NUM_THREADS": "1"}
        del self._environment["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"]  # the page has to say so

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str(self.folder / "home").encode() in (process / "cmdline").read_bytes():
                    os.killpg(int(process.name), signal.SIGTERM)  # `flwr` starts it as the leader of its own group

    def follow(self, app, commands, timeout=240):
        """The commands of a page, one after the other in one shell; what they said."""
        with subprocess.Popen(
            ["bash", "-ec", "\n".join(commands)],
            cwd=app,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as shell:
            try:
                said, _ = shell.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                os.killpg(shell.pid, signal.SIGKILL)
                raise
        assert shell.returncode == 0, said
        return said
