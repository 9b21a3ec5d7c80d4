"""A rank's bytes for one bucket: a header and one frame a parameter (``docs/wire-format.md``)."""

from sparse_ring.message.frame import Frame
from sparse_ring.message.reader import read_message
from sparse_ring.message.writer import MessageWriter

__all__ = ["Frame", "MessageWriter", "read_message"]
