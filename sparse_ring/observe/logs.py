"""The ``sparse_ring`` logger: its level from the settings, its rank in each line."""

from __future__ import annotations

import logging

TRACE = 5
LEVELS = {
    "trace": TRACE,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
}


def configure_logging(level: str, rank: int | None) -> None:
    """Set the library's level; give it a handler to stderr only where neither it nor the root has one.

    Lines begin with the rank, unless it is None: then somebody else says whose they are. Called again, it renames the
    rank of its own handler and leaves others alone.
    """
    logger = logging.getLogger("sparse_ring")
    logger.setLevel(LEVELS[level])
    own = [handler for handler in logger.handlers if isinstance(handler, _RankHandler)]
    if not own and not logger.hasHandlers():
        own = [_RankHandler()]
        logger.addHandler(own[0])
    prefix = "" if rank is None else f"[rank {rank}] "
    for handler in own:
        handler.setFormatter(logging.Formatter(f"{prefix}%(levelname)s %(name)s: %(message)s"))


class _RankHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Marks the handler that is ours."""
