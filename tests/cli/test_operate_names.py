"""`turnout operate` with names: codes from a table, lists, search, sites, voiding, naming and revoking."""

import csv
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from service.running import begun
from turnout.cli.operate import app
from turnout.service.coordinator import hashed, issue_codes
from turnout.service.store import Enrolment, Names, open_store


@pytest.fixture
def store(tmp_path):
    begun(tmp_path / "run.db").close()
    return str(tmp_path / "run.db")


def run(store, *words):
    """What a command says on both channels; its error is raised."""
    done = CliRunner().invoke(app, [*map(str, words), "--store", store])
    if done.exception:
        raise done.exception
    return done


def operate(store, *words):
    return run(store, *words).stdout


def lines(store, *words):
    return json.loads(operate(store, *words, "--json"))


def fleet(tmp_path, store, text="label,site\ncharger 4,hall 2\ncharger 41,hall 2\ngate,hall 4\ngate,depot\n"):
    """Devices that have enrolled with codes from tables, one for each row."""
    head, *rows = text.splitlines()
    for row in rows:
        (tmp_path / "one.csv").write_text(f"{head}\n{row}\n")
        (made,) = csv.DictReader(operate(store, "codes", "--from", tmp_path / "one.csv").splitlines())
        opened = open_store(store)
        code = made["code"]
        assert all(opened.enrol([Enrolment(hashed(code), hashed("nonce"), hashed(f"token {code}"))], time.time()))
        opened.close()


def test_codes_for_a_fleet_come_from_a_table(tmp_path, store):
    table = tmp_path / "fleet.csv"
    names = [(f"charger {n}", f'hall "{n % 7}", east') for n in range(300)]
    with table.open("w", newline="", encoding="utf-8-sig") as file:
        csv.writer(file).writerows([("Label", "Site", "Note"), *((*both, "new") for both in names)])
    made = list(csv.DictReader(operate(store, "codes", "--from", table, "--weight", 40).splitlines()))
    assert [(row["label"], row["site"]) for row in made] == names
    assert len({row["code"] for row in made}) == 300
    listed = lines(store, "codes", "--list", "--site", names[3][1])
    assert {(line["state"], line["weight"], line["note"]) for line in listed} == {("unused", 40, "new")}
    assert len(listed) == 43
    assert {line["tag"] for line in listed} <= {hashed(row["code"]).hex()[:12] for row in made}
    assert not any(row["code"] in operate(store, "codes", "--list") for row in made[:3]), "the code itself is gone"


def test_tables_as_other_programs_write_them(tmp_path, store):
    table = tmp_path / "fleet.csv"
    table.write_text("site; label\r\n;charger 1\r\nhall 3;charger 2\r\n")
    printed = operate(store, "codes", "--from", table, "--site", "hall 2").splitlines()
    assert [line.rpartition(",")[0] for line in printed] == ["label,site", "charger 1,hall 2", "charger 2,hall 3"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name\nx\n", "line 1 must be columns of the names label, site, note, each once, with a label, got name"),
        ("label,label\nx,y\n", "each once"),
        ("", "got nothing"),
        ("label,site\n", "holds no rows"),
        ("label,site\nx,hall,more\n", "line 2: row must be of 2 columns with a label, got more"),
        ("label,site\nx,hall\n,hall\n", "line 3: row must be of 2 columns with a label, got none"),
        ("label\nx\n" + "y" * 61 + "\n", "line 3: label must be of at most 60 characters, got 61"),
        ("label\nsame\nother\nSame\n", "label must be of one code alone, got 'same' for 2"),
        ("label\n\xff\n", "cannot be read"),
    ],
)
def test_a_table_with_a_mistake_makes_no_code_at_all(tmp_path, store, text, told):
    (tmp_path / "fleet.csv").write_bytes(text.encode("latin-1"))
    with pytest.raises(Exception, match=told):
        operate(store, "codes", "--from", tmp_path / "fleet.csv")
    assert lines(store, "codes", "--list") == []


@pytest.mark.parametrize(
    "words",
    [
        ("codes", 3, "--from", "fleet.csv"),
        ("codes", "--label", "x", "--from", "fleet.csv"),
        ("codes", 2, "--label", "x"),
        ("codes", "--search", "x"),
        ("name", "0"),
        ("revoke",),
        ("revoke", "0", "--site", "hall 2"),
        ("revoke", "--site", "nowhere"),
        ("void", "nothing"),
    ],
)
def test_what_no_operator_means_is_refused(store, words):
    with pytest.raises(ValueError, match=r" must be .*, got .*: "):
        operate(store, *words)
    assert lines(store, "codes", "--list") == []


def test_a_label_that_is_taken_is_told_and_may_be_meant(tmp_path, store):
    operate(store, "codes", "--label", "charger 9")
    again = run(store, "codes", "--label", "Charger 9")
    assert "warning: these labels are taken already: 'charger 9' (code " in again.stderr
    assert len(again.stdout.split()) == 1
    fleet(tmp_path, store)
    assert "'gate' (device 3)" in run(store, "codes", "--label", "gate").stderr
    assert run(store, "codes", "--label", "new").stderr == ""


def test_a_code_is_voided_by_label_tag_or_itself(store):
    operate(store, "codes", "--label", "charger 9")
    (code,) = operate(store, "codes").split()
    assert "is void" in operate(store, "void", "charger 9")
    assert operate(store, "void", code) == f"code {hashed(code).hex()[:12]} is void\n"
    assert {line["state"] for line in lines(store, "codes", "--list")} == {"void"}
    assert [line.split("  ")[2] for line in operate(store, "log").splitlines()] == [
        "codes",
        "codes",
        "voided",
        "voided",
    ]
    assert "charger 9" in operate(store, "log")


def test_devices_by_site_and_search(tmp_path, store):
    fleet(tmp_path, store)
    assert [line["number"] for line in lines(store, "devices", "--site", "hall 2")] == [0, 1]
    assert [line["label"] for line in lines(store, "devices", "--search", "charger")] == ["charger 4", "charger 41"]
    assert lines(store, "devices", "--search", "nobody") == []
    assert len(lines(store, "devices", "--state", "here")) == 4
    assert lines(store, "devices", "--state", "gone") == lines(store, "devices", "--state", "left") == []
    assert run(store, "log").stdout.splitlines()[0][19:24] == " UTC "
    (gate,) = lines(store, "devices", "--site", "depot")
    assert set(gate) == {"number", "tag", "label", "site", "note", "weight", "joined", "left", "state", "why"}
    printed = operate(store, "devices").splitlines()
    assert printed[0].split() == ["number", "tag", "label", "site", "weight", "state", "joined", "left", "why", "note"]
    tag = lines(store, "devices")[0]["tag"]
    assert " ".join(printed[1].split()) == f"0 {tag} charger 4 hall 2 1 here 0 - - -"
    operate(store, "revoke", "charger 4")
    assert lines(store, "sites") == [
        {"site": "depot", "here": 1, "gone": 0, "left": 0},
        {"site": "hall 2", "here": 1, "gone": 0, "left": 1},
        {"site": "hall 4", "here": 1, "gone": 0, "left": 0},
    ]
    assert operate(store, "sites").splitlines()[2].split() == ["hall", "2", "1", "0", "1"]


def test_a_device_is_renamed_and_revoked_by_its_name(tmp_path, store):
    fleet(tmp_path, store)
    with pytest.raises(ValueError, match=r"got 'gate', which 2 devices have: device 2 .*hall 4.*, device 3 .*depot"):
        operate(store, "revoke", "gate")
    with pytest.raises(ValueError, match="give the whole label: device 0 "):
        operate(store, "revoke", "charger")
    assert all(line["left"] is None for line in lines(store, "devices"))
    assert operate(store, "name", 3, "--label", "lift", "--note", "") == "device 3: label 'lift', site 'depot'\n"
    assert operate(store, "revoke", "GATE") == "device 2 (gate) is no member from round 0 on\n"
    assert operate(store, "name", "lift", "--label", "", "--site", "") == "device 3: no names\n"
    log = operate(store, "log")
    assert "renamed  device 3: label 'gate' -> 'lift'\n" in log
    assert "revoked  device 2, label 'gate', site 'hall 4'\n" in log


def test_a_whole_site_is_revoked_when_it_is_confirmed(tmp_path, store):
    fleet(tmp_path, store)
    with pytest.raises(
        ValueError, match="--yes must be given to revoke 2 devices, got nothing: these are devices 0, 1"
    ):
        operate(store, "revoke", "--site", "hall 2")
    assert all(line["left"] is None for line in lines(store, "devices"))
    assert len(operate(store, "revoke", "--site", "hall 2", "--yes").splitlines()) == 2
    assert [line["left"] for line in lines(store, "devices")] == [0, 0, None, None]


def test_the_commands_of_the_operating_page(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    block = re.search(r"^### Names\n.*?```bash\n(.*?)```", page, re.DOTALL | re.MULTILINE).group(1)
    store = begun(tmp_path / "turnout.db")
    names = [Names("", "hall 2")] * 20
    codes = issue_codes(store, 20, 1, 24.0, "me", names)
    store.enrol([Enrolment(hashed(code), hashed("nonce"), hashed(f"token {code}")) for code in codes], time.time())
    store.close()
    (tmp_path / "fleet.csv").write_text("label,site\ncharger 1,hall 2\ncharger 2,hall 3\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    shell = ["bash", "-euc", block]
    done = subprocess.run(
        shell, cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ | {"PATH": path}, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert [line.rpartition(",")[0] for line in (tmp_path / "codes.csv").read_text().splitlines()] == [
        "label,site", "charger 1,hall 2", "charger 2,hall 3",
    ]  # fmt: skip
    assert "device 17: label 'charger 17', site 'hall 3'" in done.stdout
    assert done.stdout.count("is no member from round 0 on") == 20
    kept = open_store(str(tmp_path / "turnout.db"))
    assert [line.what for line in kept.changes()] == ["codes", "codes", "codes", "voided", "renamed", *["revoked"] * 20]
    kept.close()
