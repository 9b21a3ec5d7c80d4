"""The transport's contract over gloo, and what becomes of connections when ranks leave, die or stay silent."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest
import torch.distributed as dist

from sparse_ring.config import Config
from sparse_ring.errors import ConfigError, RankLostError, StallError
from sparse_ring.transport.torch_distributed.c10d import C10dTransport
from tests.contracts.transport import CASES
from tests.helpers import run_torch, start_torch

SCRIPT = Path(__file__).parent / "c10d_ranks.py"
GONE = "has ended without shutdown(): it was killed, or failed with an error that its own output shows."


@pytest.mark.ranks
@pytest.mark.parametrize("size", [2, 3])
def test_contract(tmp_path: Path, size: int) -> None:
    output = run_torch(size, SCRIPT, "contract", str(tmp_path))
    assert output == "".join(f"rank {rank} passed {len(CASES)} cases\n" for rank in range(size))


@pytest.mark.ranks
@pytest.mark.parametrize("mode", ["cycles", "late", "frozen"])
def test_ranks_that_end_in_order(tmp_path: Path, mode: str) -> None:
    assert run_torch(3, SCRIPT, mode, str(tmp_path)) == f"{mode}: ok\n" * 3


@pytest.mark.ranks
@pytest.mark.faults
def test_a_long_message_that_does_not_fit_is_an_error_and_the_next_one_arrives(tmp_path: Path) -> None:
    output = run_torch(2, SCRIPT, "too_large", str(tmp_path))
    text = "Message from rank {}: 100000 bytes arrived, but the buffer holds 99999\n"
    assert output == "".join(f"rank {rank}: {text.format(1 - rank)}" for rank in range(2))


@pytest.mark.ranks
@pytest.mark.faults
def test_closing_with_transfers_that_nobody_answers_does_not_block(tmp_path: Path) -> None:
    assert run_torch(2, SCRIPT, "unfinished", str(tmp_path)) == "unfinished: ok\n" * 2


@pytest.mark.ranks
@pytest.mark.faults
def test_a_rank_that_leaves_in_order_does_not_disturb_the_others(tmp_path: Path) -> None:
    told = [f"rank {rank}: Rank 1 has shut down, and sends nothing more.\nleaves: ok\n" for rank in (0, 2)]
    assert run_torch(3, SCRIPT, "leaves", str(tmp_path)) == "".join(told)


@pytest.mark.ranks
@pytest.mark.faults
def test_a_killed_rank_is_named_by_all_even_where_they_wait_for_another(tmp_path: Path) -> None:
    ended = start_torch(3, SCRIPT, "killed", str(tmp_path))
    assert [code for code, _ in ended] == [0, -9, 0]
    for rank in (0, 2):
        assert ended[rank][1] == f"rank {rank} lost 1: Rank 1 {GONE}\n" * 2


@pytest.mark.ranks
@pytest.mark.faults
def test_abort_ends_the_process_with_its_code_and_the_others_are_told(tmp_path: Path) -> None:
    ended = start_torch(3, SCRIPT, "aborted", str(tmp_path))
    assert ended == [(0, f"rank 0: Rank 1 {GONE}\n"), (7, "last words"), (0, f"rank 2: Rank 1 {GONE}\n")]


@pytest.mark.faults
def test_ranks_that_do_not_come_are_named(caplog: pytest.LogCaptureFixture) -> None:
    config = Config(stall_check_time_seconds=0.05, stall_shutdown_time_seconds=0.2)
    store = dist.HashStore()
    store.set("here/1", "")
    transport = C10dTransport(store, 0, 4, config=config)
    with caplog.at_level(logging.WARNING, "sparse_ring"), pytest.raises(StallError) as caught:
        transport.open()
    transport.close()
    assert caught.value.ranks == (2, 3)
    assert "Rank 0: init() has waited 0 s for ranks [2, 3]." in caplog.text


@pytest.mark.faults
def test_a_rank_that_gives_up_before_it_is_connected_is_named() -> None:
    transport = C10dTransport(dist.HashStore(), 0, 2, gone=lambda: 1)
    with pytest.raises(RankLostError, match=re.escape(f"Rank 1 {GONE}")):
        transport.open()
    transport.close()


def test_a_piece_has_at_least_a_byte() -> None:
    with pytest.raises(ConfigError, match=r"piece_bytes is 0"):
        C10dTransport(None, 0, 1, piece_bytes=0)
