"""A store as turnout made it while its tables were of version 1: written out, so that no later change alters it."""

import sqlite3

import psycopg

from service.postgres import server

TABLES = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE run (one KEY PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, settings TEXT NOT NULL,
    begun_at REAL NOT NULL);
CREATE TABLE state (one KEY PRIMARY KEY CHECK (one = 1), round WHOLE NOT NULL, offered REAL NOT NULL,
    controller TEXT NOT NULL, switched_on BYTES NOT NULL, capacity REAL NOT NULL, mode TEXT NOT NULL,
    revision WHOLE NOT NULL);
CREATE TABLE devices (slot KEY PRIMARY KEY, token BYTES NOT NULL, weight WHOLE NOT NULL, joined WHOLE NOT NULL,
    left_in WHOLE NULL, revision WHOLE NOT NULL);
CREATE TABLE codes (code BYTES PRIMARY KEY, weight WHOLE NOT NULL, expires_at REAL NULL, nonce BYTES NULL,
    slot WHOLE NULL);
CREATE TABLE books (round KEY PRIMARY KEY, signal REAL NOT NULL, capacity REAL NOT NULL, slots WHOLE NOT NULL,
    codes BYTES NOT NULL, participants WHOLE NOT NULL, demand WHOLE NOT NULL, members WHOLE NOT NULL,
    heard WHOLE NOT NULL, frozen WHOLE NOT NULL, seconds REAL NOT NULL, closed_at REAL NOT NULL);
CREATE TABLE log (line KEY PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, what TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX devices_by_revision ON devices (revision)
"""

RUN = (
    '{"mechanism": {"kind": "clamp", "epsilon": 1.0, "center": 0.5}, "controller": {"kind": "self-tuning", '
    '"initial": 1.0}, "start": {"average": 0.5, "rounds": 10}, "averaging": {"by": "bit"}, "safety": {"missing": '
    '"absent", "hard_limit": 7.0, "quorum": 0.5}, "timing": {"round": 10.0, "deadline": 15.0, "lease": 15.0, "hold": '
    '30.0}, "wait_for": 1, "delta": 1e-06}'
)
CONTROLLER = '{"signal": 1.25, "gain": 0.5, "error": 0.5, "size": 2.0}'
DATA = [
    "INSERT INTO meta VALUES ('schema', '1')",
    f"INSERT INTO run VALUES (1, 'chargers', '{RUN}', 1234.5)",
    f"INSERT INTO state VALUES (1, 2, 1.25, '{CONTROLLER}', BITS'80', 5.0, 'running', 4)",
    "INSERT INTO devices VALUES (0, BITS'aa', 1, 0, NULL, 1), (1, BITS'bb', 3, 1, NULL, 2), (2, BITS'cc', 1, 1, 2, 4)",
    "INSERT INTO codes VALUES (BITS'01', 1, NULL, BITS'11', 0), (BITS'02', 3, 1e10, NULL, NULL)",
    "INSERT INTO books VALUES (0, 1.0, 5.0, 1, BITS'80', 1, 1, 1, 1, 0, 10.0, 2000.0), "
    "(1, 1.5, 5.0, 3, BITS'90', 1, 1, 3, 2, 0, 10.0, 2010.0)",
    "INSERT INTO log VALUES (0, 1500.0, 'me', 'capacity', '4 -> 5')",
]
"""Two closed rounds, three devices, one of which has left, a code that is used and one that is not."""

REFUSAL = "'this table is only ever added to'"


def make(kind: str, location: str) -> None:
    """Such a store, in a new place of a kind."""
    if kind == "sqlite":
        _make_sqlite(location)
    else:
        _make_postgres(location)


def _spelt(sql: str, **words: str) -> str:
    for word, own in words.items():
        sql = sql.replace(word, own)
    return sql


def _make_sqlite(location: str) -> None:
    triggers = []
    for table, key in (("books", "round"), ("log", "line")):
        ends = f"BEGIN SELECT RAISE(ABORT, {REFUSAL}); END"
        taken = f"WHEN EXISTS (SELECT 1 FROM {table} WHERE {key} = NEW.{key})"
        triggers += [
            f"CREATE TRIGGER {table}_unchanged BEFORE UPDATE ON {table} {ends}",
            f"CREATE TRIGGER {table}_undeleted BEFORE DELETE ON {table} {ends}",
            f"CREATE TRIGGER {table}_unreplaced BEFORE INSERT ON {table} {taken} {ends}",
        ]
    connection = sqlite3.connect(location)
    for statement in [*TABLES.split(";"), *triggers, *DATA]:
        connection.execute(
            _spelt(statement, WHOLE="INTEGER", BYTES="BLOB", BITS="X", **{"KEY PRIMARY": "INTEGER PRIMARY"})
        )
    connection.commit()
    connection.close()


def _make_postgres(location: str) -> None:
    refuse = "EXECUTE FUNCTION refuse_change()"
    more = [
        "CREATE UNLOGGED TABLE reports "
        "(round BIGINT, slot BIGINT, code SMALLINT, batch BIGINT NOT NULL, PRIMARY KEY (round, slot))",
        "CREATE INDEX reports_by_batch ON reports (round, batch)",
        "CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION {REFUSAL}; END $$",
        *(f"CREATE TRIGGER unchanged BEFORE UPDATE OR DELETE ON {t} FOR EACH ROW {refuse}" for t in ("books", "log")),
        *(f"CREATE TRIGGER untruncated BEFORE TRUNCATE ON {t} FOR EACH STATEMENT {refuse}" for t in ("books", "log")),
    ]
    words = {"WHOLE": "BIGINT", "BYTES": "BYTEA", "REAL": "DOUBLE PRECISION", "KEY PRIMARY": "BIGINT PRIMARY"}
    with psycopg.connect(location) as connection:
        connection.execute("CREATE SCHEMA turnout")
        connection.execute("SET search_path TO turnout")
        for statement in [*TABLES.split(";"), *more, *DATA]:
            connection.execute(_spelt(statement, BITS="'\\x", **words).replace("\\x'", "\\x"))


def columns(kind: str, location: str) -> dict[str, set[tuple]]:
    """The tables of a store, each with (name, type, whether it may be NULL) of its columns."""
    if kind == "sqlite":
        connection = sqlite3.connect(location)
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {
            name: {(row[1], row[2], bool(row[3])) for row in connection.execute(f"PRAGMA table_info({name})")}
            for name in names
        }
        connection.close()
        return found
    sql = "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
    found = {}
    for table, *rest in server().sql(location, sql + "WHERE table_schema = 'turnout'"):
        found.setdefault(table, set()).add(tuple(rest))
    return found


def triggers(kind: str, location: str) -> set[tuple]:
    """What keeps tables from being changed, as the database has it."""
    if kind == "sqlite":
        connection = sqlite3.connect(location)
        rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        found = {(name, " ".join(sql.split())) for name, sql in rows}
        connection.close()
        return found
    sql = "SELECT event_object_table, trigger_name, event_manipulation, action_statement FROM "
    return {*server().sql(location, sql + "information_schema.triggers WHERE trigger_schema = 'turnout'")}
