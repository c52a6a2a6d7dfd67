"""The address of a PostgreSQL database: connecting to it, and what is said when that fails, never with a password."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from turnout.service.stores.store import StoreProblem

if TYPE_CHECKING:
    import psycopg

SCHEMA_NAME = "turnout"
"""The tables' schema within the database; one run a database."""

FROZEN = "10s"
"""After so long the server ends a transaction in which nothing happens: a coordinator that was halted in the middle."""

HEARTBEAT = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
"""Seconds, seconds, times: after 25 s a side that is cut off takes the other for gone, and the lead is free."""

REMEDIES = {
    "": "check that the server runs, that the database exists (`createdb`), and address, user and password",
    "25006": "the server only reads: give the address of the primary",
    "42501": "let this user create and use the schema `turnout` in the database",
    "53100": "make room on the server's disk",
    "55P03": "another process keeps it locked: end that one",
}


class Address:
    """Where a database is.

    Args:
        location: `postgresql://user:password@host:port/database`.

    Attributes:
        shown: it without user, password and options, for messages.

    Raises:
        StoreProblem: it cannot be read as an address.
    """

    def __init__(self, location: str) -> None:
        from psycopg import Error
        from psycopg.conninfo import conninfo_to_dict

        self._location = location
        self.shown = without_secrets(location)
        try:
            parts = conninfo_to_dict(location)
        except Error:
            parts = {"host": "@"}
        if any("@" in str(parts.get(name)) for name in ("host", "hostaddr", "port", "dbname")):
            raise StoreProblem(
                f"{self.shown}: not a PostgreSQL address: write postgresql://user:password@host:port/database, "
                "the password percent-encoded"
            ) from None
        self._secrets = [str(value) for name, value in parts.items() if "password" in name and value]

    def connect(self) -> psycopg.Connection[Any]:
        """A new connection, each statement of which is its own transaction unless one is begun.

        Raises:
            psycopg.Error: it cannot be made.
        """
        import psycopg

        heartbeat: dict[str, Any] = HEARTBEAT | {"tcp_user_timeout": 20_000}
        connection = psycopg.connect(
            self._location,
            autocommit=True,
            client_encoding="utf8",
            application_name="turnout",
            connect_timeout=5,
            **heartbeat,
        )
        with connection.cursor() as cursor:
            cursor.execute(f"SET search_path TO {SCHEMA_NAME}")
            cursor.execute(f"SET idle_in_transaction_session_timeout = '{FROZEN}'")
            cursor.execute("SET lock_timeout = '20s'")
            for name, value in HEARTBEAT.items():
                cursor.execute(f"SET tcp_{name} = {value}".encode())
            if cursor.execute("SHOW synchronous_commit").fetchone() == ("off",):
                cursor.execute("SET synchronous_commit = on")
        return connection

    def problem(self, error: Exception) -> StoreProblem:
        """What to raise in place of the library's error."""
        text = " ".join(str(error).split())
        for secret in self._secrets:
            text = text.replace(secret, "…")
        remedy = REMEDIES.get(getattr(error, "sqlstate", None) or "", "the server's own log says more")
        return StoreProblem(f"{self.shown}: {text or 'no answer'}: {remedy}")


def without_secrets(location: str) -> str:
    """A location for messages: without user, password and options.

    Example:
        >>> without_secrets("postgresql://me:secret@db.example:5432/turnout?sslmode=require")
        'postgresql://db.example:5432/turnout'
    """
    return re.sub(r"//.*@", "//", location).split("?")[0]
