"""``hearth doctor``: what this machine has and lacks, one line each, with the remedy."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from hearth.app.doctor import examine

if TYPE_CHECKING:
    import argparse

    from hearth.app.profile import Profile

MARKS = {"ok": "✓", "note": "·", "problem": "✗"}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("doctor", help="what this machine has and lacks")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(run=run_doctor)


def run_doctor(profile: Profile, options: argparse.Namespace) -> int:
    findings = examine(profile.paths)
    for finding in findings:
        if options.json:
            print(json.dumps(asdict(finding), ensure_ascii=False))
        else:
            remedy = f"  → {finding.remedy}" if finding.remedy else ""
            print(f"{MARKS[finding.state]} {finding.what}: {finding.value}{remedy}")
    return 1 if any(finding.state == "problem" for finding in findings) else 0
