"""The arms by name, for those who only read results."""

COMPUTE_ONLY = "compute only"
DENSE_OURS = ["sparse_ring dense", "sparse_ring bf16"]
OURS = [
    *DENSE_OURS, "sparse_ring topk 1 %", "sparse_ring gradsa 1 %", "sparse_ring gradsa 1 % int4", "sparse_ring gradsa 0.1 %",
]  # fmt: skip
DENSE_PEERS = ["ddp fp32", "ddp fp16", "ddp bf16"]
EXCHANGING_EACH_STEP = [*OURS, *DENSE_PEERS, "ddp powersgd rank 1", "ddp powersgd rank 4"]
MEETING = "compute and meet"
ARMS = [COMPUTE_ONLY, MEETING, *EXCHANGING_EACH_STEP, "post-local sgd"]
