"""Threads that sit in blocking waits for others: as many as there are waits at a time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

Job = Callable[[], None]


class Waiters:
    """A pool that grows as needed: a job never queues behind another, because each may block for hours.

    The threads are daemons. A job must not raise.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._free = 0
        self._closed = False
        self.threads: list[threading.Thread] = []

    def run(self, job: Job) -> None:
        """Run ``job`` on a thread that is free, or on a new one."""
        with self._lock:
            if self._free:
                self._free -= 1
                self._jobs.put(job)
                return
            thread = threading.Thread(target=self._work, args=(job,), name=self._name, daemon=True)
            self.threads.append(thread)
        thread.start()

    def close(self) -> None:
        """Let each thread end once its job has; does not wait."""
        with self._lock:
            self._closed = True
            for _ in range(self._free):
                self._jobs.put(None)
            self._free = 0

    def _work(self, job: Job | None) -> None:
        while job is not None:
            job()
            # What a job holds (buffers) must not live on while the thread is free.
            job = None
            with self._lock:
                if self._closed:
                    return
                self._free += 1
            job = self._jobs.get()
