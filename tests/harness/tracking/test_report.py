"""Runs and a Report sent to a W&B server on the loopback that answers the calls they make and keeps what it is told."""

import gzip
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from chomsky_ladder.harness.cli import track
from chomsky_ladder.harness.cli.wandb import wandb as wandb_command
from chomsky_ladder.harness.store.folder import RunFolder
from chomsky_ladder.harness.tracking import mirror
from chomsky_ladder.harness.tracking.trackers import wandb as tracking
from support.records_by_hand import filled, folder_of, result_of, runs

try:
    import wandb_workspaces as wandb_workspaces
except ImportError as error:
    if os.environ.get("LADDER_ORACLES") == "required":
        raise
    pytest.skip(str(error), allow_module_level=True)

ROOT = Path(__file__).parents[3]
PROJECT = {"id": "1", "name": "chomsky-ladder", "entityName": "us", "entity": {"id": "2", "name": "us"}}


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.runs: dict[str, dict[str, Any]] = {}
        self.views: list[dict[str, Any]] = []
        self.projects = [PROJECT]
        self.knows = True  # how to answer

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that was killed closes its connections as it can."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)

    def of(self, run_id: str) -> dict[str, Any]:
        return self.runs.setdefault(run_id, {"rows": [], "summary": {}, "upserts": [], "exits": []})

    def answer(self, name: str, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to the operation of this name."""
        if not self.knows:
            return {}
        if name in ("Viewer", "GetDefaultEntity"):
            return {"viewer": {"id": "3", "username": "us", "entity": "us", "flags": "{}", "teams": {"edges": []}}}
        if name == "RunResumeStatus":
            return {"model": {**PROJECT, "bucket": self.bucket(asked["name"]) if asked["name"] in self.runs else None}}
        if name == "UpsertBucket":
            new = asked["name"] not in self.runs
            self.of(asked["name"])["upserts"].append({k: v for k, v in asked.items() if v is not None})
            return {"upsertBucket": {"bucket": self.bucket(asked["name"]), "inserted": new}}
        if name == "CreateRunFiles":
            base = f"http://127.0.0.1:{self.server_port}/uploads"
            files = [{"name": file, "uploadUrl": f"{base}/{file}"} for file in asked["files"]]
            return {"createRunFiles": {"runID": "4", "uploadHeaders": [], "files": files}}
        if name == "GetProjects":
            nodes = [
                {"__typename": "Project", "createdAt": "2026-01-01", "isBenchmark": False, "user": None, **p}
                for p in self.projects
            ]
            page = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
            return {"models": {"pageInfo": page, "edges": [{"node": node} for node in nodes]}}
        if name == "ProjectInternalId":
            known = any(each["name"] == asked["projectName"] for each in self.projects)
            return {"project": {"id": "1", "internalId": "5"} if known else None}
        if name == "upsertView":
            self.views.append(asked)
            view = {"id": "VmlldzoxMjM=", "updatedAt": None, "project": PROJECT}
            view |= {key: asked[key] for key in ("type", "name", "displayName", "description", "spec")}
            return {"upsertView": {"view": view, "inserted": True}}
        return {}

    def bucket(self, run_id: str) -> dict[str, Any]:
        run = self.of(run_id)
        config = next((each["config"] for each in reversed(run["upserts"]) if "config" in each), "{}")
        return {
            "id": run_id,
            "name": run_id,
            "displayName": run_id,
            "description": "",
            "sweepName": None,
            "project": PROJECT,
            "config": config,
            "summaryMetrics": json.dumps(run["summary"]),
            "historyLineCount": len(run["rows"]),
            "historyTail": json.dumps([json.dumps(row) for row in run["rows"][-1:]]),
            "eventsLineCount": 0,
            "eventsTail": "[]",
            "logLineCount": 0,
            "tags": [],
            "notes": "",
            "wandbConfig": json.dumps({"t": {"5": "0.31.0"}}),
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, format: str, *words: object) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        reply: dict[str, Any] = {}
        if self.path == "/graphql":
            call = json.loads(body)
            found = re.search(r"(?:query|mutation)\s+(\w+)", call["query"])
            assert found is not None
            reply = {"data": self.server.answer(found[1], call.get("variables") or {})}
        elif self.path.endswith("/file_stream"):
            run, said = self.server.of(self.path.split("/")[-2]), json.loads(body)
            files = said.get("files", {})
            run["rows"] += [json.loads(line) for line in files.get("wandb-history.jsonl", {}).get("content", [])]
            for line in files.get("wandb-summary.json", {}).get("content", []):
                run["summary"] = json.loads(line)
            run["exits"] += [said["exitcode"]] if said.get("complete") else []
        self._reply(reply)

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._reply({})

    def do_GET(self) -> None:
        self._reply({})

    def _reply(self, tree: dict[str, Any]) -> None:
        body = json.dumps(tree).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def surroundings(server: Server, home: Path) -> dict[str, str]:
    """Environment in which wandb sees this server and nothing of the user's."""
    folders = dict.fromkeys(("HOME", "WANDB_CONFIG_DIR", "WANDB_CACHE_DIR", "WANDB_DATA_DIR"), str(home))
    mine = {"WANDB_BASE_URL": f"http://127.0.0.1:{server.server_port}", "WANDB_API_KEY": "0" * 40}
    return {**folders, **mine, "NETRC": str(home / "netrc"), "WANDB_ERROR_REPORTING": "false"}


def ladder_wandb(server: Server, home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    code = "import sys; from chomsky_ladder.harness.cli.wandb import wandb; sys.exit(wandb(sys.argv[1:]))"
    command, env = [sys.executable, "-c", code, *words], {**kept, **surroundings(server, home)}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)


def rows_of(server: Server, run_id: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("_")} for row in server.runs[run_id]["rows"]]


@pytest.mark.full
def test_sync_sends_what_is_new(tmp_path: Path, server: Server) -> None:
    run = runs()[3]
    folder = folder_of(tmp_path, run)
    folder.log(step=10, loss=0.5)
    folder.log(step=10, validation=0.25)
    words = ["sync", "--results", str(tmp_path)]
    first = ladder_wandb(server, tmp_path, *words)
    assert (first.returncode, first.stdout) == (0, f"[1/1] {run.run_id}\n"), first.stderr
    lines = [{"step": 10, "loss": 0.5}, {"step": 10, "validation": 0.25}]
    assert rows_of(server, run.run_id) == lines
    folder.log(step=20, loss=0.125)
    again = ladder_wandb(server, tmp_path, *words)
    assert again.returncode == 0, again.stderr
    assert list(server.runs) == [run.run_id]
    assert rows_of(server, run.run_id) == [*lines, {"step": 20, "loss": 0.125}]
    assert server.runs[run.run_id]["summary"]["final"] == {"status": "unfinished"}
    assert server.runs[run.run_id]["upserts"][0]["displayName"] == "parity-lstm-7"
    assert server.runs[run.run_id]["exits"] == [1, 1]


@pytest.mark.full
def test_a_server_that_answers_nonsense_is_one_line(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It makes wandb's own process crash, which is why none of it is in the training process."""
    server.knows, run = False, runs()[0]
    folder = folder_of(tmp_path, run)
    for name, value in surroundings(server, tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(mirror, "_trouble", {})
    with mirror.mirrored([(run, {})], tmp_path, mode="online"):
        folder.log(step=1, loss=0.5)
        start = time.monotonic()
    assert time.monotonic() - start < mirror.PATIENCE
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith("W&B is left alone from here on: ")


def test_a_sync_that_breaks_off_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(tracker: object, folders: list[RunFolder], *, mode: str, group: str) -> Iterator[str]:
        yield folders[0].path.name
        raise TimeoutError("the upload\ntook too long")

    monkeypatch.setattr(track, "sync", breaks)
    monkeypatch.setattr(tracking, "finished", lambda: None)
    monkeypatch.setenv("WANDB_SILENT", "true")
    assert wandb_command(["sync", "--results", str(filled(tmp_path))]) == 1
    assert capsys.readouterr().err == "ladder: 1 of 4 runs copied, then TimeoutError: the upload took too long\n"


@pytest.mark.full
def test_the_report_has_the_tables_curves_and_provenance(tmp_path: Path, server: Server) -> None:
    other = runs()[3]
    folder_of(filled(tmp_path), other).finish(result_of(other))
    ended = ladder_wandb(server, tmp_path, "report", "--results", str(tmp_path), "--title", "A <b>title</b>")
    assert ended.returncode == 0, ended.stderr
    (view,) = server.views
    assert ended.stdout.startswith(f"http://127.0.0.1:{server.server_port}/us/chomsky-ladder/reports/")
    assert (view["displayName"], view["entityName"], view["type"]) == ("A <b>title</b>", "us", "runs")
    blocks = json.loads(view["spec"])["blocks"]
    kinds = [block["type"] for block in blocks if block["type"] != "paragraph"]
    section = ["heading", "markdown-block", "heading", "panel-grid"]
    assert kinds == ["table-of-contents", *section, *section, "heading", "markdown-block"]
    heads = [block["children"][0]["text"] for block in blocks if block["type"] == "heading"]
    protocols = ["xlstm_20k", "xlstm_20k (eval.test=9)"]
    assert heads == [protocols[0], "Learning curves", protocols[1], "Learning curves", "Provenance"]
    *tables, made = [block["content"] for block in blocks if block["type"] == "markdown-block"]
    assert all("parity" in text and "0.75" in text and "|" in text for text in tables)
    assert ["LSTM (d_model=16)" in text for text in tables] == [False, True]
    assert made.startswith("4 runs: diverged (1), done (2), failed (1)")
    assert "commit: c0ffee (4)" in made and "4 of them ran code that differed" in made
    grids = [block["metadata"] for block in blocks if block["type"] == "panel-grid"]
    for protocol, grid in zip(protocols, grids, strict=True):
        (runset,) = grid["runSets"]
        assert runset["project"]["name"] == "chomsky-ladder"
        (sieve,) = runset["filters"]["filters"]
        assert (sieve["key"]["section"], sieve["op"], sieve["value"]) == ("config", "=", protocol)
        assert sieve["key"]["name"].startswith("protocol_label")
        curves = [panel["config"] for panel in grid["panelBankSectionConfig"]["panels"]]
        assert [curve["metrics"] for curve in curves] == [["validation"], ["loss"]]
        assert {curve["xAxis"] for curve in curves} == {"step"}


@pytest.mark.full
def test_a_report_on_a_project_that_is_not_there_is_one_line(tmp_path: Path, server: Server) -> None:
    server.projects = []
    ended = ladder_wandb(server, tmp_path, "report", "--results", str(filled(tmp_path)))
    assert ended.returncode == 1 and not server.views
    assert ended.stderr.count("\n") == 1 and "project 'us/chomsky-ladder' not found" in ended.stderr
