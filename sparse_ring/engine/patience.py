"""How the engine's thread waits for other ranks: it looks, sleeps a little, looks again, and takes no core for it."""

from __future__ import annotations

import ctypes
import os
import sys
import time

SPINS = 8
SHORTEST_SLEEP_SECONDS = 20e-6
LONGEST_SLEEP_SECONDS = 500e-6
# While the training thread computes, an eighth of what was waited; while it waits too, nobody else needs this core.
PATIENT_PART, HURRIED_PART = 8, 32
YIELDING_SECONDS = 200e-6
CROWDED_SECONDS = 200e-6
CROWDED_FOR_SECONDS = 0.1

TIMER_SLACK_NANOSECONDS = 1000
_PR_SET_TIMERSLACK = 29


def pause_seconds(waited_seconds: float, hurry: bool = False) -> float:
    """Return how long a wait sleeps next: a part of what it has waited, from 20 to 500 us; 0: give way to others only."""
    if hurry and waited_seconds < YIELDING_SECONDS:
        return 0.0
    part = HURRIED_PART if hurry else PATIENT_PART
    return min(max(waited_seconds / part, SHORTEST_SLEEP_SECONDS), LONGEST_SLEEP_SECONDS)


class Patience:
    """The pauses of one engine. Where giving way costs long, the core is wanted by others, and it sleeps for a while.

    Who gives way on a busy core loses its turn, some milliseconds; who sleeps comes first when it wakes.
    """

    def __init__(self) -> None:
        self._crowded_until = 0.0

    def pause(self, waited_seconds: float, hurry: bool) -> None:
        """Pause between two looks. ``hurry``: a caller waits for the outcome and does nothing else."""
        seconds = pause_seconds(waited_seconds, hurry)
        if seconds == 0.0:
            began = time.monotonic()
            if began >= self._crowded_until:
                os.sched_yield()
                self.gave_way(began, time.monotonic())
                return
            seconds = SHORTEST_SLEEP_SECONDS
        time.sleep(seconds)

    def gave_way(self, began: float, ended: float) -> None:
        """Take note of how long giving way took, in seconds of ``time.monotonic``."""
        if ended - began > CROWDED_SECONDS:
            self._crowded_until = ended + CROWDED_FOR_SECONDS


def sleep_precisely() -> None:
    """Let this thread's sleeps end on time: Linux may prolong each by 50 us, more than most of them are long."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(TIMER_SLACK_NANOSECONDS), 0, 0, 0)
