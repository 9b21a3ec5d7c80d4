"""The page docs/results/dense.md, from the JSON beside it.

python -m benchmarks.dense_page docs/results/dense.json > docs/results/dense.md
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.dense import table
from benchmarks.measure import markdown_table

INTRODUCTION = """\
# Dense allreduce beside torch's gloo

`mpiexec -n 2 python -m benchmarks.dense --pairs 12`, the same with `-n 4`, and, on links of benchmarks/netlab,
`python -m benchmarks.dense --lab 100mbit --hosts 2 4 --largest 4194304 --pairs 12` and
`python -m benchmarks.dense --lab 1gbit --hosts 2 4 --largest 16777216 --pairs 16`; each with `--json docs/results/dense.json` and
`--plot docs/results/dense.png`, then `python -m benchmarks.dense_page docs/results/dense.json`. On {processor}, {cores} cores. Both
sum the same float32 tensor in the same processes, in turn. Times are medians over the pairs of a mean over a few calls (50 of the
smallest), the slowest rank's; the ratio is the median of the pairs' ratios, with what it exceeds at 95 % confidence (one-sided,
sign test). Load is the machine's average over the minute before that size, the ranks of earlier sizes included.

Means and typical calls differ here: of 1 KiB, the median of gloo's single calls was 0.28 ms and their mean 1.05 ms; ours had 0.20
and 0.24 ms (two ranks, 1,500 calls in a row, three times, timed by hand: the command above prints means only). So the ratios of
small tensors say what a mix of calls costs on this machine; a typical call of 1 KiB is about 1.4 times as fast. gloo's mean was as
long (1.3 ms) in processes that ran nothing else; why some of its calls take milliseconds, we have not looked into.

On links the large sizes are the wire's: ratios near 1. At 1 Gbit/s ours is 4 to 5 % slower at 4 MiB, and 3 % at 1 MiB on four
hosts. Segments of 256 KiB instead of 1 MiB took 16 MiB on two hosts to 1.00 and 4 MiB to 0.94, and cost up to half of the speed
among four ranks in shared memory, so they stayed at 1 MiB.

![Ratio over size](dense.png)
"""


def main() -> None:
    record = json.loads(Path(sys.argv[1]).read_text())
    machine = record["machine"]
    print(INTRODUCTION.format(processor=machine["processor"], cores=machine["cores"]))
    for title, entry in record["dense"].items():
        print(f"## {title}\n\n{markdown_table(*table(entry['rows']))}\n")


if __name__ == "__main__":
    main()
