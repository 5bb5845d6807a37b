"""What the program tells the shell."""

from __future__ import annotations

EXIT_OK, EXIT_FAILED, EXIT_INTERRUPTED = 0, 1, 130
