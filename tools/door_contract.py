"""A contract for import-linter: other packages enter a package by its door, the names that its `__init__` exports."""

from __future__ import annotations

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class DoorContract(Contract):
    """No module imports a module inside another package.

    Configuration options:
        - packages: the packages that have doors; a package inside another one may be listed, too.
    """

    packages = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Every import of a module of a package comes from the same package."""
        packages = sorted(self.packages, key=len, reverse=True)  # type: ignore[call-overload]

        def home(module: str) -> str:
            return next((name for name in packages if module == name or module.startswith(f"{name}.")), module)

        climbed = [
            (importer, module)
            for module in graph.modules
            if module not in packages and home(module) in packages
            for importer in graph.find_modules_that_directly_import(module)
            if home(importer) != home(module)
        ]
        return ContractCheck(kept=not climbed, metadata={"climbed": sorted(climbed)})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Which module imports what, and what to do."""
        climbed: list[tuple[str, str]] = check.metadata["climbed"]
        for importer, module in climbed:
            output.print_error(f"{importer} imports {module}: export the name in its package, and import it from there")
