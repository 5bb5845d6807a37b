"""The program: ``hearth …`` and ``python -m hearth.app …``."""

from __future__ import annotations

import os
import sys

# torch's threads would spin while they wait for each other: beside another busy program that costs
# several times the work itself. Read when torch is loaded, so it is set before anything else.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> int:
    """Parse, run, and turn expected failures into one sentence and an exit code."""
    from hearth.app.cli.root import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
