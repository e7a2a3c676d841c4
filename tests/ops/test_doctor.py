"""`toolformer doctor`: every finding that can be brought about, and that it changes nothing."""

import json
import os
import socket
from pathlib import Path

import pytest

from ops import doctor
from ops.doctor import CHECKS, DoctorOptions, Finding, run_checks
from ops.ports import LOOPBACK
from tests.support.commands import Run
from toolformer_core.embedded import MODEL
from warehouse.files.lock import FileLock

ONE_PASSAGE = '{"title": "Midroi Sheshi", "text": "Midroi Sheshi was born in Oravel."}\n'


def found(check: str, asked: DoctorOptions) -> list[Finding]:
    return [Finding(check, told[0], told[1], "".join(told[2:])) for told in CHECKS[check](asked)]


def the(check: str, asked: DoctorOptions) -> Finding:
    [one] = found(check, asked)
    return one


def test_a_sound_installation_fails_nowhere_and_stays_as_it_is(tmp_path: Path) -> None:
    data = tmp_path / "data"
    findings = list(run_checks(DoctorOptions(str(data), ports=())))
    assert [one for one in findings if one.level == "fail"] == []
    assert {one.check for one in findings} >= set(CHECKS) - {"ports"}
    assert all(one.remedy for one in findings if one.level != "ok")
    assert not data.exists()


def test_other_versions_than_those_tried_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pins = tmp_path / "constraints.txt"
    pins.write_text("prefect==1.0\npytest==2.0\nno-such-package==1.0\n# a remark\n")
    monkeypatch.setattr(doctor, "CONSTRAINTS", pins)
    one = the("packages", DoctorOptions(str(tmp_path)))
    assert one.level == "warn"
    assert "prefect 3." in one.message
    assert "(1.0), pytest " in one.message
    assert "no-such-package" not in one.message  # nobody asks for it
    assert one.remedy == "pip install --constraint constraints.txt --editable ."
    monkeypatch.setattr(doctor, "CONSTRAINTS", tmp_path / "none")
    assert "no constraints file" in the("packages", DoctorOptions(str(tmp_path))).message


def test_a_package_that_is_missing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = ["duckdb", "no-such-package>=2", 'other; extra == "dev"']
    monkeypatch.setattr(doctor, "requires", lambda name: wanted)
    one = found("packages", DoctorOptions(str(tmp_path)))[0]
    assert (one.level, one.message) == ("fail", "not installed: no-such-package")


def test_a_taken_port_is_named_with_its_holder_and_the_option_that_names_another(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        one = the("ports", DoctorOptions(str(tmp_path), ports=(("up --mlflow-port", port),)))
    assert one.level == "warn"
    assert f"port {port} is taken by process {os.getpid()}" in one.message
    assert one.remedy == "stop it, or choose another port: up --mlflow-port"


def test_the_ports_of_our_own_servers_are_no_finding(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as listener, FileLock(tmp_path / "up" / "lock"):
        port = listener.getsockname()[1]
        address = f"http://{LOOPBACK}:{port}"
        told = {**dict.fromkeys(("ui", "api", "mlflow", "viewer"), address), "warehouse": "", "logs": ""}
        told |= {"pid": 7, "seconds": 1.0}
        (tmp_path / "up" / "addresses.json").write_text(json.dumps(told))
        one = the("ports", DoctorOptions(str(tmp_path), ports=(("up --mlflow-port", port),)))
    assert (one.level, "process 7" in one.message) == ("ok", True)


@pytest.mark.parametrize(("free", "level"), [(0.9, "fail"), (1.0, "warn"), (9.9, "warn"), (10.0, "ok")])
def test_what_is_short_is_told_by_how_short_it_is(free: float, level: str) -> None:
    told = doctor._measured("", free, (1.0, 10.0), "remedy")
    assert told == (level, "", "" if level == "ok" else "remedy")


def test_a_model_that_is_not_there_fails(tmp_path: Path) -> None:
    asked = DoctorOptions(str(tmp_path), model=str(tmp_path / "none"))
    embedded, own = found("model", asked)
    assert (embedded.level, own.level) == ("ok", "fail")
    assert "no folder" in own.message
    named = DoctorOptions(str(tmp_path), model=str(MODEL))
    assert [one.level for one in found("model", named)] == ["ok", "ok"]


def test_passages_of_ones_own_are_looked_into(tmp_path: Path) -> None:
    own = tmp_path / "passages.jsonl"
    own.write_text(ONE_PASSAGE)
    assert the("tools", DoctorOptions(str(tmp_path), passages=str(own))).level == "ok"
    own.write_text("")
    one = the("tools", DoctorOptions(str(tmp_path), passages=str(own)))
    assert (one.level, "holds no passages" in one.message) == ("fail", True)


def test_a_data_folder_is_looked_through_to_the_snapshot(as_built: Path) -> None:
    sound = found("data", DoctorOptions(str(as_built)))
    assert [one.level for one in sound] == ["ok", "ok", "ok"]
    assert "16 documents" in sound[-1].message
    with FileLock(as_built / "catalog.duckdb.lock"):
        assert "the catalog is in use" in found("data", DoctorOptions(str(as_built)))[1].message
    (as_built / "catalog.duckdb").write_bytes(b"no database")
    (as_built / "warehouse.duckdb").unlink()
    _, catalog, snapshot = found("data", DoctorOptions(str(as_built)))
    assert [catalog.level, snapshot.level] == ["fail", "fail"]
    assert catalog.remedy == f"toolformer reconcile --data {as_built}"
    (as_built / "catalog.duckdb").unlink()
    assert found("data", DoctorOptions(str(as_built)))[1].level == "warn"


def test_a_database_that_is_none_of_mlflows_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert the("mlflow", DoctorOptions(str(tmp_path))).message == "no run has been tracked yet"
    (tmp_path / "mlflow.db").write_bytes(b"no database at all, but some bytes")
    one = the("mlflow", DoctorOptions(str(tmp_path)))
    assert one.level == "fail"
    assert "mlflow db upgrade" in one.remedy


def test_what_a_profile_needs_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"launcher": "ssh", "device": "cpu", "ssh": {"hosts": ["a"]}}))
    monkeypatch.setenv("PATH", str(tmp_path))
    told = found("training", DoctorOptions(str(tmp_path), profile=str(file)))
    assert (told[0].level, told[0].message) == ("fail", "not found: ssh")
    assert the("training", DoctorOptions(str(tmp_path), profile="abacus")).level == "fail"
    assert the("training", DoctorOptions(str(tmp_path), profile="cpu")).level == "ok"


def test_the_command(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "CHECKS", {name: CHECKS[name] for name in ("python", "training")})
    sound = run("doctor", "--data", tmp_path)
    assert (sound.code, sound.out.startswith("ok    python    Python 3.")) == (0, True)
    failed = run("doctor", "--data", tmp_path, "--profile", "abacus")
    assert failed.code == 1
    assert failed.out.splitlines()[1:] == [
        "fail  training  no profile abacus",
        "                -> give --profile a name (cpu, bf16, core, gpu, lora) or a JSON file",
        *("", "1 failed, 0 to know of"),
    ]
    code, out, _ = run("doctor", "--data", tmp_path, "--profile", "abacus", "--json")
    assert (code, [one["level"] for one in json.loads(out)]) == (1, ["ok", "fail"])
