"""What the owner of a private cost decides: the same for an agent and for a Flower client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from turnout.algorithm import Mechanism
from turnout.client.durable import DATUM, LEDGER
from turnout.client.ledger import Ledger
from turnout.client.limit import Limit
from turnout.files import Disk


@dataclass(frozen=True)
class Owner:
    """What the owner allows, and where the ledger is. No server can change it.

    Args:
        limit: of all reports and releases about the cost; None: the ledger's, or the default.
        consent: agrees to a higher limit than before.
        accept_uncertified: accepts a mechanism without a certificate, this time.
        spend_missing: continues with a ledger that is lost in part or whole, and counts what is missing as spent.
        mechanism: uses this one alone; None: what the server proposes, within the limit.
        after_stop: once the budget is spent "leave", or "follow": act on public data alone.
        ledger: the file that counts all reports about the cost; in the client's folder by default. Folders of one
            device that share a cost share a ledger.
        witness: the ledger's second file, best on other storage.

    Example:
        >>> Owner(Limit(1000, 0.5)).ledger_in("charger").as_posix()
        'charger/ledger.jsonl'
    """

    limit: Limit | None = None
    consent: bool = False
    accept_uncertified: bool = False
    spend_missing: bool = False
    mechanism: Mechanism | None = None
    after_stop: str = "leave"
    ledger: str | Path | None = None
    witness: str | Path | None = None

    def ledger_in(self, folder: str | Path) -> Path:
        """Where the ledger of the client in a folder is."""
        return Path(self.ledger or Path(folder, LEDGER))

    def open_ledger(self, folder: str | Path, *, usual: Limit | None = None, disk: Disk | None = None) -> Ledger:
        """Open it, or begin it with the limit or the default; raises what `Ledger.open` does."""
        return Ledger.open(
            self.ledger_in(folder),
            datum=DATUM,
            limit=self.limit,
            usual=usual,
            consent=self.consent,
            accept_uncertified=self.accept_uncertified,
            witness=self.witness,
            spend_missing=self.spend_missing,
            disk=disk,
        )
