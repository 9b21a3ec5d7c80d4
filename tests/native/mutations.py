"""Run by fuzz.py under the sanitizers: mutated messages, each refused by name or decoded within bounds.

    python -m tests.native.mutations MODULE --repaired N --unrepaired N [--first N]

Repaired messages have their checksums computed anew, so that what is wrong reaches the decoders; the others must all be
refused. Message number i follows from i alone: a failure names it, and ``--first i --repaired 1`` shows it again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
from collections import Counter

import numpy as np

from tests.native.sanitized import progress_file


def load_native(path: str) -> None:
    """Make ``sparse_ring._native`` the module at ``path``; before anything imports it."""
    specification = importlib.util.spec_from_file_location("sparse_ring._native", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    sys.modules["sparse_ring._native"] = module


def check_repaired(first: int, count: int, progress: int) -> Counter[str]:
    """Mutate, repair and decode messages; return how they ended. The number of each is in the file ``progress`` meanwhile."""
    from tests.native.corpus import Corpus
    from tests.native.mutate import mutated, repaired

    corpus, ends = Corpus(), Counter[str]()
    for number in range(first, first + count):
        os.pwrite(progress, b"%-12d" % number, 0)
        generator = random.Random(number)
        sample = corpus.samples[generator.randrange(len(corpus.samples))]
        message = repaired(mutated(sample.message, corpus, generator))
        ends.update(corpus.decode(sample, message, number))
    return ends


def check_unrepaired(count: int) -> int:
    """Mutate messages and leave their checksums; return how many were refused."""
    from tests.native.corpus import Corpus
    from tests.native.mutate import mutated

    corpus, refused = Corpus(), 0
    for number in range(count):
        generator = random.Random(~number)
        sample = corpus.samples[generator.randrange(len(corpus.samples))]
        message = sample.message
        while np.array_equal(message, sample.message):
            message = mutated(sample.message, corpus, generator)
        assert corpus.refuses(sample, message, number), f"message {number}: damage was not noticed"
        refused += 1
    return refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module")
    parser.add_argument("--repaired", type=int, default=0)
    parser.add_argument("--unrepaired", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    arguments = parser.parse_args()
    load_native(arguments.module)
    progress = os.open(progress_file(arguments.module), os.O_WRONLY | os.O_CREAT)
    ends = check_repaired(arguments.first, arguments.repaired, progress)
    for end, times in ends.most_common():
        print(f"{times:8d} frames: {end}")
    print(f"repaired {arguments.repaired}: {ends['decoded']} frames decoded, {ends.total() - ends['decoded']} refused")
    print(f"unrepaired {arguments.unrepaired}: {check_unrepaired(arguments.unrepaired)} refused")


if __name__ == "__main__":
    main()
