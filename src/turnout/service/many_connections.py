"""What a process needs to hold thousands of connections: enough open files, and a fast event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


def allow_files(wanted: int) -> int:
    """Let this process open more files, since every connection is one; as many as the system grants.

    Returns:
        How many it may open now; that may be fewer than wanted.
    """
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    granted = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < granted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (granted, hard))
        soft = granted
    return wanted if soft == resource.RLIM_INFINITY else soft


def run_in_loop(main: Coroutine[Any, Any, Result]) -> Result:
    """Run it in a new event loop: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        factory = None
    else:
        factory = uvloop.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        return runner.run(main)
