"""Disks that fail or crash at a chosen step, and a mechanism with a box, for the tests of durability."""

import errno
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from turnout.algorithm import Mechanism
from turnout.files import Disk


class Crash(BaseException):
    """The machine is gone; nothing may catch this."""


@dataclass(frozen=True)
class Boxed(Mechanism):
    """The intent, kept in [0.25, 0.75]: ln 3 per report."""

    kind = "boxed"

    @staticmethod
    def response(intent, average, parameters):
        return intent

    @staticmethod
    def limits(average, parameters):
        return 0.25, 0.75


class CountingCoins:
    """Coins that note each toss, in a list and (for a child that will be killed) in a file."""

    def __init__(self, seed=None):
        self.random = np.random.default_rng(seed)
        self.tossed = []

    def uniform(self, clients, round, purpose=0):
        self.tossed.append(round)
        return self.random.random(len(clients))


class FailingDisk(Disk):
    """Every step is numbered from 1; the chosen one (and, if lasting, all later ones) fails with an OSError."""

    def __init__(self, at=0, error=errno.ENOSPC, lasting=False):
        self.steps, self.at, self.error, self.lasting = 0, at, error, lasting

    def _step(self):
        self.steps += 1
        if self.at and (self.steps == self.at or (self.lasting and self.steps > self.at)):
            self.fail()

    def fail(self):
        raise OSError(self.error, os.strerror(self.error))

    def write(self, descriptor, data):
        try:
            self._step()
        except BaseException:
            super().write(descriptor, data[: len(data) // 2])  # a torn line
            raise
        super().write(descriptor, data)

    def sync(self, descriptor):
        self._step()
        super().sync(descriptor)

    def replace(self, source, target):
        self._step()
        super().replace(source, target)


class CrashingDisk(FailingDisk):
    """Crashes at the chosen step. With `power`, all that was not synced is lost as well."""

    def __init__(self, at=0, power=False):
        super().__init__(at)
        self.power, self.synced, self.renamed = power, {}, {}

    def fail(self):
        raise Crash

    def write(self, descriptor, data):
        status = os.fstat(descriptor)
        self.synced.setdefault(status.st_ino, (os.readlink(f"/proc/self/fd/{descriptor}"), status.st_size))
        super().write(descriptor, data)

    def sync(self, descriptor):
        super().sync(descriptor)
        self.synced.pop(os.fstat(descriptor).st_ino, None)
        folder = os.readlink(f"/proc/self/fd/{descriptor}")
        self.renamed = {path: old for path, old in self.renamed.items() if str(path.parent) != folder}

    def replace(self, source, target):
        self.renamed[target] = target.read_bytes() if target.exists() else None
        for inode, (path, size) in self.synced.items():  # renamed before its content was on the disk
            self.synced[inode] = (str(target) if path == str(source) else path, size)
        super().replace(source, target)

    def lose_power(self):
        """What the disk holds after the crash."""
        if not self.power:
            return
        for path, size in self.synced.values():
            if os.path.exists(path):
                os.truncate(path, size)
        for path, old in self.renamed.items():
            if old is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(old)


def copy(folder: Path, to: Path) -> Path:
    """A backup of a whole folder."""
    shutil.copytree(folder, to, dirs_exist_ok=True)
    return to
