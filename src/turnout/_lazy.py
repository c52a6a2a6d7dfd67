"""Names that a package loads on first use, where loading all of them at once would be slow or need an extra."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from turnout.errors import MissingExtra


def lazy(
    package: str, modules: Mapping[str, Iterable[str]], *, library: str = "", extra: str = ""
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names are loaded on first use.

    Args:
        package: its `__name__`.
        modules: the names that each module has, relative to the package.
        library: what the modules need besides the base install, and
        extra: the extra that brings it.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def load(name: str) -> Any:
        if name not in homes:
            import difflib  # for a wrong name alone

            near = difflib.get_close_matches(name, homes, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"dir({package}) lists what there is"
            raise AttributeError(f"module {package!r} has no attribute {name!r}: {hint}")
        try:
            found = getattr(importlib.import_module(f"{package}.{homes[name]}"), name)
        except ModuleNotFoundError as missing:
            if not library or missing.name is None or missing.name.split(".")[0] != library:
                raise
            raise MissingExtra(f"{package}.{name}", library=library, extra=extra) from None
        setattr(sys.modules[package], name, found)  # found without this function from now on
        return found

    return load, lambda: sorted(homes)
