"""Algorithms over a link: how the bytes of all ranks become one result."""
