"""Train a byte-level GPT on the source text of Python's standard library, with checkpoints that continue bit for bit.

sparse-ring-run -np 2 python examples/stdlib_lm.py --checkpoint checkpoints --resume
"""

import argparse
import dataclasses
import sysconfig
from pathlib import Path

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import sparse_ring.torch as hvd
from sparse_ring.recipe import RECIPES, recipe_named

CONTEXT, WIDTH, HEADS, LAYERS = 128, 128, 4, 2


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", choices=list(RECIPES), default="topk")
    parser.add_argument(
        "--density", type=float, default=0.01, help="fraction of the elements sent, where a recipe has one"
    )
    parser.add_argument("--steps", type=int, default=1200, help="train up to this step")
    parser.add_argument("--batch", type=int, default=16, help="pieces of text a step, over all ranks")
    parser.add_argument("--seed", type=int, default=0, help="weights and choice of pieces")
    parser.add_argument("--bf16", action="store_true", help="compute in bfloat16 (autocast)")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="save here every 200 steps and at the end")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    return parser.parse_args()


def library() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bytes to train on, and those of every 20th file to validate on."""
    texts = [file.read_bytes() for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))]
    parts = b"".join(text for i, text in enumerate(texts) if i % 20), b"".join(texts[::20])
    return tuple(torch.frombuffer(bytearray(part), dtype=torch.uint8) for part in parts)


class GPT(nn.Module):
    """479 thousand parameters; 99 % are in matrices that are sent sparsely."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, WIDTH), nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor, starts: torch.Tensor, bf16: bool) -> torch.Tensor:
        """Return the mean loss (nats a byte) over the pieces of the text that begin at ``starts``."""
        pieces = torch.stack([text[start : start + CONTEXT + 1] for start in starts.tolist()]).long()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT)
            hidden = self.layers(self.bytes(pieces[:, :-1]) + self.places, mask, is_causal=True)
            return cross_entropy(self.head(self.norm(hidden)).float().transpose(1, 2), pieces[:, 1:])


def main() -> None:
    args = parse()
    hvd.init()
    torch.manual_seed(args.seed)
    (train, validation), model = library(), GPT()
    has_density = "density" in {field.name for field in dataclasses.fields(RECIPES[args.recipe])}
    recipe = recipe_named(args.recipe, **({"density": args.density} if has_density else {}))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), compression=recipe)
    first = 0
    if args.resume and args.checkpoint and (args.checkpoint / "manifest.json").exists():
        first = hvd.load_checkpoint(args.checkpoint, optimizer, model)["step"]
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(first, args.steps):
        # The step alone decides what is read, so that a checkpoint need not remember it.
        draw = torch.Generator().manual_seed((args.seed << 32) + step)
        starts = torch.randint(len(train) - CONTEXT, (args.batch,), generator=draw)[hvd.rank() :: hvd.size()]
        optimizer.zero_grad()
        loss = model(train, starts, args.bf16)
        loss.backward()
        optimizer.step()
        hvd.report(loss=loss)
        if args.checkpoint and ((step + 1) % 200 == 0 or step + 1 == args.steps):
            hvd.save_checkpoint(args.checkpoint, optimizer, model, {"step": step + 1})
    with torch.no_grad():
        starts = torch.linspace(0, len(validation) - CONTEXT - 1, 64).long()[hvd.rank() :: hvd.size()]
        loss = hvd.allreduce(model(validation, starts, args.bf16))
    entropy = torch.special.entr(torch.bincount(validation) / len(validation)).sum()
    replica = hvd.parameter_hash(model.parameters())
    print(f"validation loss {loss:.3f} nats a byte (entropy of single bytes {entropy:.3f}), parameter hash {replica}")
    hvd.shutdown()


if __name__ == "__main__":
    main()
