"""The traceback with which a rank ended, kept to be shown last."""

from __future__ import annotations

import re

LINES = 300
_BEGIN = re.compile(rb"\s*(\+ )?(Exception Group )?Traceback \(most recent call last\):$|Fatal Python error: ")
_CHAIN = re.compile(
    rb"During handling of the above exception, another exception occurred:$"
    rb"|The above exception was the direct cause of the following exception:$"
)


class LastWords:
    """Takes the lines of one rank's stderr and keeps its last traceback, with those that it is chained to.

    Where more than 300 lines came since it began, it was not what ended the rank, and is forgotten.
    """

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._chained = self._inside = False

    @property
    def lines(self) -> list[bytes]:
        """The traceback's lines, none where there is no traceback."""
        return list(self._lines)

    def notice(self, line: bytes) -> None:
        """Take the next line."""
        if _CHAIN.match(line):
            self._chained = True
        elif _BEGIN.match(line):
            if not self._chained:
                self._lines.clear()
            self._inside, self._chained = True, False
        if self._inside:
            self._lines.append(line)
        if len(self._lines) > LINES:
            self._lines.clear()
            self._inside = False
