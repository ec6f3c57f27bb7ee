"""The command line: readable help, nearest names, one line for a mistake."""

import json
import re
from types import SimpleNamespace

import pytest

from lib import cli
from lib.experiments import logic_run, sweep


def call(monkeypatch, capsys, *words):
    monkeypatch.setattr("sys.argv", ["lib", *words])
    code = 0
    try:
        cli.main()
    except SystemExit as stop:
        code = stop.code or 0
    said = capsys.readouterr()
    return code, re.sub(r"\x1b\[[0-9;]*m", "", said.out), said.err


def test_run_prints_a_table(monkeypatch, capsys):
    code, out, err = call(
        monkeypatch, capsys, "run", "logic", "--preset", "tiny", "--steps", "2", "--device", "cpu"
    )
    assert code == 0 and err == ""
    assert [line.split()[0] for line in out.splitlines()] == ["share", "step", "0", "2"]


def test_run_prints_losses_for_language_models(monkeypatch, capsys):
    rows = [
        {"step": s, "loss_validation": 5.0, "loss_test": 4.5, "W_U_unseen_cosine": 0.1}
        for s in (0, 1)
    ]
    monkeypatch.setattr(cli, "train", lambda *args: SimpleNamespace(history=rows))
    code, out, err = call(monkeypatch, capsys, "run", "logic", "--preset", "text")
    assert code == 0 and err == ""
    assert [line.split()[0] for line in out.splitlines()] == ["nats", "step", "0", "1"]


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--arm", "coppy"], "nearest: copy"),
        (["--preset", "labtop"], "nearest: laptop"),
        (["--device", "tpu"], "use auto, cpu, cuda or mps"),
        (["--preset", "tiny", "--seed", "-1"], "seed"),
    ],
)
def test_a_mistake_is_one_line(monkeypatch, capsys, words, hint):
    code, out, err = call(monkeypatch, capsys, "run", "logic", *words)
    assert code == 2 and hint in err and len(err.splitlines()) == 1 and out == ""


def test_seed_zero_is_a_seed_like_any_other():
    assert logic_run("laptop", seed=0).seed == 0
    assert logic_run("laptop", seed=0) != logic_run("laptop", seed=1)


@pytest.mark.parametrize("shard", [(2, 2), (-1, 2)])
def test_impossible_shards_are_refused(shard):
    with pytest.raises(ValueError, match="shard"):
        sweep("logic", shard=shard)


def test_claims_as_json(monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, "claims", "--json")
    assert code == 0 and "A1" in json.loads(out)


def test_help_fits_a_person(monkeypatch, capsys):
    code, out, _ = call(monkeypatch, capsys, "run", "--help")
    assert code == 0 and "Train one model" in out and "--device" in out
