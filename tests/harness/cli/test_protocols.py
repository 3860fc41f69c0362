"""`ladder describe --protocol`: every setting a protocol makes is shown, for people and for programs."""

import json

import pytest

from chomsky_ladder.harness.cli.main import main
from chomsky_ladder.harness.config.presets import PROTOCOLS


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["describe", "--protocol", *words]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("name", PROTOCOLS)
def test_every_setting_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    protocol, text = PROTOCOLS[name], said(capsys, name)
    settings = [protocol.train, protocol.eval, protocol.model, protocol.task, *protocol.models.values()]
    settings += [*protocol.tasks.values(), *(rung.settings for rung in protocol.rungs)]
    settings += [own for case in protocol.cases for own in (case.train, case.eval, case.model)]
    shown = [line.split()[0].rpartition(".")[2] for line in text.splitlines() if line.strip()]
    for key in (key for own in settings for key in own):
        assert key in shown, key
    assert protocol.reports in text and f"of {protocol.seeds} seeds" in text
    assert (f"version {protocol.version}" in text) == (protocol.version > 1)


def test_all_rungs_of_a_climb_are_listed_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    text, rungs = said(capsys, "climb-v1"), PROTOCOLS["climb-v1"].rungs
    lines = text.partition("\nrungs\n")[2].splitlines()[: len(rungs)]
    assert [line.split()[0] for line in lines] == [str(place) for place in range(1, 13)]
    assert all(rung.name in line and rung.task in line for rung, line in zip(rungs, lines, strict=True))


def test_programs_have_it_whole(capsys: pytest.CaptureFixture[str]) -> None:
    tree = json.loads(said(capsys, "grazzi", "--json"))
    assert (tree["protocol"], tree["version"], tree["reports"]) == ("grazzi", PROTOCOLS["grazzi"].version, "best")
    assert any(case["train"] == {"batch": 512} for case in tree["cases"])


def test_a_wrong_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["describe", "--protocol", "grazy"]) == 2
    assert capsys.readouterr().err == "ladder: unknown protocol 'grazy'; did you mean grazzi?\n"
