"""How the engine's thread waits for other ranks: it looks, sleeps a little, looks again, and takes no core for it."""

from __future__ import annotations

import ctypes
import sys
import time

SPINS = 8
SHORTEST_SLEEP_SECONDS = 20e-6
LONGEST_SLEEP_SECONDS = 500e-6
# While the training thread computes, an eighth of what was waited; while it waits too, nobody else needs this core.
PATIENT_PART, HURRIED_PART = 8, 32
SPINNING_SECONDS = 100e-6
# Two looks that lie so much further apart than was slept: another thread had the core.
CROWDED_SECONDS = 200e-6
CROWDED_FOR_SECONDS = 0.1

TIMER_SLACK_NANOSECONDS = 1000
_PR_SET_TIMERSLACK = 29


def pause_seconds(waited_seconds: float, hurry: bool = False, longest: float = LONGEST_SLEEP_SECONDS) -> float:
    """Return how long a wait sleeps next: a part of what it has waited, from 20 us to ``longest``; 0: it looks again at once."""
    if hurry and waited_seconds < SPINNING_SECONDS:
        return 0.0
    part = HURRIED_PART if hurry else PATIENT_PART
    return min(max(waited_seconds / part, SHORTEST_SLEEP_SECONDS), longest)


class Patience:
    """The pauses of one engine. A wait spins at first where a caller waits too, unless other threads want the core: those that
    get it instead may be the ones that are waited for.

    It never yields: who does so on a busy core loses its turn, some milliseconds; who sleeps comes first when it wakes.
    """

    def __init__(self) -> None:
        self._looked = self._waited = self._slept = 0.0
        self._crowded_until = 0.0

    def pause(self, waited_seconds: float, hurry: bool) -> None:
        """Pause between two looks. ``hurry``: a caller waits for the outcome and does nothing else."""
        now = time.monotonic()
        # Less waited than at the last look, or no look yet: this is another wait.
        if waited_seconds > self._waited > 0.0 and now - self._looked > self._slept + CROWDED_SECONDS:
            self._crowded_until = now + CROWDED_FOR_SECONDS
        seconds = pause_seconds(waited_seconds, hurry and now >= self._crowded_until)
        self._looked, self._waited, self._slept = now, waited_seconds, seconds
        if seconds:
            time.sleep(seconds)


def sleep_precisely() -> None:
    """Let this thread's sleeps end on time: Linux may prolong each by 50 us, more than most of them are long."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(TIMER_SLACK_NANOSECONDS), 0, 0, 0)
