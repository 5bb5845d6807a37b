"""The program: ``hearth …`` and ``python -m hearth.app …``."""

from __future__ import annotations

import sys


def main() -> int:
    """Parse, run, and turn expected failures into one sentence and an exit code."""
    from hearth.app.cli.root import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
