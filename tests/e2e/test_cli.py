"""The program as a person starts it: its own process, its own profile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HEARTH = (sys.executable, "-m", "hearth.app")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def home_with_model(home: Path, starter_model: Path) -> Path:
    (home / "models").mkdir(parents=True)
    (home / "models" / starter_model.name).symlink_to(starter_model)
    return home


def environment(home: Path) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")}
    kept.pop("QT_QPA_PLATFORM", None)
    return {**kept, "HEARTH_HOME": str(home), "PYTHONUNBUFFERED": "1"}


def hearth(home: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEARTH, *arguments],
        env=environment(home),
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def lines(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


def reply(output: str) -> dict[str, Any]:
    return next(line for line in lines(output) if line["event"] == "reply")


def test_help_needs_neither_torch_nor_qt(home: Path) -> None:
    code = (
        "import sys; from hearth.app.cli.root import build_parser; build_parser().format_help();"
        "bad = {'torch', 'PySide6', 'numpy'} & set(sys.modules); sys.exit(str(bad) if bad else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(home), capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("chat", "--prompt", "hi"), "There is no model yet."),
        (("models", "inspect", "nothing"), "There is no model nothing."),
        (("models", "import", "/nowhere.gguf"), "does not exist"),
        (("models", "remove", "nothing"), "There is no model nothing."),
        (("chat", "--temperature", "-1", "--prompt", "x"), "--temperature -1.0 is impossible"),
    ],
)
def test_mistakes_are_one_sentence(home: Path, arguments: tuple[str, ...], sentence: str) -> None:
    done = hearth(home, *arguments)
    assert done.returncode == 1
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_file_that_is_no_model_is_not_remembered(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF but not really")
    done = hearth(home, "models", "import", str(broken))
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert lines(hearth(home, "models", "list", "--json").stdout) == []


def test_inspect_plans_for_a_card_that_is_not_here(home_with_model: Path) -> None:
    told = hearth(home_with_model, "models", "inspect", "starter", "--card", "8GB", "--json")
    memory = lines(told.stdout)[0]["memory"]
    assert told.returncode == 0
    assert memory["largest_context"] == 8192
    assert memory["bytes_per_token"]["bf16"] == 30 * 2 * 3 * 64 * 2
    refused = hearth(
        home_with_model, "models", "inspect", "starter", "--card", "8GB", "--context", "9000"
    )
    assert refused.returncode == 1
    assert "9,000 are too many. Choose at most 8,192 tokens." in refused.stderr
    assert "Keys and values" in refused.stdout


def test_without_a_display_the_terminal_takes_over(home: Path) -> None:
    done = hearth(home)
    assert "Starting 'hearth chat' instead." in done.stderr
    assert done.returncode == 1  # there is no model in this profile
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("command", "names"),
    [("bench", ("decode", "prefill", "resume", "ui")), ("check", ("exactness", "oracle", "store"))],
)
def test_help_lists_every_measurement(home: Path, command: str, names: tuple[str, ...]) -> None:
    text = hearth(home, command, "--help").stdout
    assert [name for name in names if f"\n    {name} " not in text] == []
    for name in names:
        done = hearth(home, command, name, "--help")
        assert (done.returncode, done.stdout.split()[:4]) == (
            0,
            ["usage:", "hearth", command, name],
        )


@pytest.mark.parametrize("words", [("bench", "ui"), ("bench", "decode"), ("check", "store")])
def test_a_mistyped_option_is_refused(home: Path, words: tuple[str, str]) -> None:
    done = hearth(home, *words, "--jsno")
    assert done.returncode == 2
    assert "--jsno" in done.stderr
    assert done.stdout == ""


def test_a_measurement_without_a_model_says_what_to_do(home: Path) -> None:
    done = hearth(home, "bench", "decode")
    assert (done.returncode, done.stdout) == (1, "")
    assert "hearth models pull starter" in done.stderr


def test_every_figure_says_machine_date_and_command(home: Path) -> None:
    machine, *figures = lines(hearth(home, "bench", "ui", "--json").stdout)
    assert machine["command"] == "hearth bench ui --json"
    assert machine["date"]
    assert [figure["record"] for figure in figures] == ["flush", "open chat"]


def test_check_store_answers_in_json(home: Path) -> None:
    done = hearth(home, "check", "store", "--json")
    assert done.returncode == 0, done.stderr
    assert lines(done.stdout) == [{"check": "store", "chats": 0, "problems": []}]


def test_doctor_answers_in_json_and_names_what_to_do(home: Path) -> None:
    done = hearth(home, "doctor", "--json")
    findings = {line["what"]: line for line in lines(done.stdout)}
    assert {"Python", "torch", "kernels", "memory", "disk", "models"} <= findings.keys()
    assert "models pull starter" in findings["models"]["remedy"]
    assert all(line["remedy"] for line in findings.values() if line["state"] == "problem")


@pytest.mark.model
def test_models_are_imported_inspected_and_forgotten(home: Path, starter_model: Path) -> None:
    done = hearth(home, "models", "import", str(starter_model), "--json")
    assert done.returncode == 0, done.stderr
    name = lines(done.stdout)[0]["name"]
    facts = lines(hearth(home, "models", "inspect", name, "--json").stdout)[0]
    assert (facts["architecture"], facts["trained_context"]) == ("llama", 8192)
    assert hearth(home, "models", "remove", name).returncode == 0
    assert starter_model.exists()


@pytest.mark.slow
@pytest.mark.model
def test_a_question_its_follow_up_and_the_store(home_with_model: Path) -> None:
    ask = ("--json", "--temperature", "0", "--max-tokens", "16")
    first = hearth(home_with_model, "chat", *ask, "--prompt", "What is the capital of France?")
    assert first.returncode == 0, first.stderr
    answer = reply(first.stdout)
    assert "Paris" in answer["text"]
    assert answer["status"] == "complete"
    more = hearth(home_with_model, "chat", "--last", *ask, "--prompt", "And of Italy?")
    usage = reply(more.stdout)["usage"]
    assert reply(more.stdout)["chat"] == answer["chat"]
    assert usage["restored_tokens"] + usage["reused_tokens"] > 0.6 * usage["prompt_tokens"]
    check = hearth(home_with_model, "check", "store", "--json")
    assert lines(check.stdout)[0]["chats"] == 1


@pytest.mark.model
def test_lines_from_a_pipe_are_messages_and_commands(home_with_model: Path) -> None:
    script = "Say hi.\n/regenerate\n/edit Say ho.\n/nonsense\n/chats\n/quit\n"
    done = hearth(home_with_model, "chat", "--json", "--max-tokens", "4", text=script)
    assert done.returncode == 0, done.stderr
    events = lines(done.stdout)
    replies = [event for event in events if event["event"] == "reply"]
    assert len({event["message"] for event in replies}) == 3
    assert len({event["chat"] for event in replies}) == 1
    assert any("no command /nonsense" in e["text"] for e in events if e["event"] == "notice")


def start_long_reply(home: Path) -> tuple[subprocess.Popen[str], list[dict[str, Any]]]:
    """A process that is in the middle of writing, and what it has said so far."""
    arguments = ("chat", "--json", "--temperature", "0", "--max-tokens", "4000")
    process = subprocess.Popen(
        [*HEARTH, *arguments, "--prompt", "Count from 1 to 1000: 1, 2, 3,"],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    seen: list[dict[str, Any]] = []
    guard = threading.Timer(100, process.kill)
    guard.start()
    for line in process.stdout:
        seen.append(json.loads(line))
        if sum(event.get("tokens", 0) for event in seen) > 40:
            break
    guard.cancel()
    return process, seen


@pytest.mark.model
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_ctrl_c_stops_the_reply_and_keeps_it(home_with_model: Path) -> None:
    process, _ = start_long_reply(home_with_model)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert reply(output)["status"] == "stopped"
    assert reply(output)["text"]


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_program_loses_nothing_that_was_journalled(home_with_model: Path) -> None:
    process, seen = start_long_reply(home_with_model)
    process.kill()
    process.communicate()
    shown = "".join(event["text"] for event in seen if event["event"] == "text")
    done = hearth(home_with_model, "chat", "--last", "--max-tokens", "4", "--prompt", "Go on.")
    assert done.returncode == 0, done.stderr
    assert "Count from 1 to 1000" in done.stderr
    assert f"Hearth: {shown[:2]}" in done.stderr  # the interrupted reply, from its journal
    assert hearth(home_with_model, "check", "store").returncode == 0


@pytest.mark.model
def test_a_second_program_does_not_touch_a_profile_in_use(home_with_model: Path) -> None:
    process, _ = start_long_reply(home_with_model)
    try:
        second = hearth(home_with_model, "chat", "--prompt", "hi")
        assert second.returncode == 1
        assert "already running" in second.stderr
        assert "--temp-profile" in second.stderr
    finally:
        process.kill()
        process.communicate()


def test_a_shape_is_measured_without_a_model_file(home: Path) -> None:
    options = ("--shape", "tiny-dense", "--format", "q6_k", "--repeats", "1", "--json")
    done = hearth(home, "bench", "decode", *options, "--output-tokens", "8")
    machine, decode = lines(done.stdout)
    assert machine["model"] == "synthetic:tiny-dense:q6_k"
    assert machine["weights"] == "synthetic weights: time only"
    assert decode["best_tok_s"] > 0
    assert "peer" not in decode


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--shape", "tiny", "--model", "x"), "not allowed with"),
        (("--shape", "huge"), "invalid choice"),
        (("--format", "q6_k"), "Use --format with --shape."),
        (("--shape", "tiny-dense", "--peer-python", "python"), "Leave out --peer-python"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(
    home: Path, options: tuple[str, ...], sentence: str
) -> None:
    done = hearth(home, "bench", "decode", *options)
    assert done.returncode != 0
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
