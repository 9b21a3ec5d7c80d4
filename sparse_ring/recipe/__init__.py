"""A recipe says how one model's gradients are compressed; one file each, and one line in the table below.

``base.py`` is the contract; ``sparse.py``, ``quantized.py``, ``agreed.py`` and ``factored.py`` are the kinds from which the others
derive.
"""

from __future__ import annotations

from typing import Any

from sparse_ring.errors import ConfigError
from sparse_ring.recipe.adaptivebits import AdaptiveBits as AdaptiveBits
from sparse_ring.recipe.agreed import AgreedRecipe as AgreedRecipe
from sparse_ring.recipe.base import CompressingRecipe as CompressingRecipe
from sparse_ring.recipe.base import MessageRecipe as MessageRecipe
from sparse_ring.recipe.base import Recipe as Recipe
from sparse_ring.recipe.base import RingRecipe as RingRecipe
from sparse_ring.recipe.bf16 import BF16 as BF16
from sparse_ring.recipe.chunktopk import ChunkTopK as ChunkTopK
from sparse_ring.recipe.cltk import CLTK as CLTK
from sparse_ring.recipe.dense import Dense as Dense
from sparse_ring.recipe.dgc import DGC as DGC
from sparse_ring.recipe.factored import FactoredRecipe as FactoredRecipe
from sparse_ring.recipe.fourbit import FourBit as FourBit
from sparse_ring.recipe.fp16 import FP16 as FP16
from sparse_ring.recipe.gradsa import GradSA as GradSA
from sparse_ring.recipe.int8 import Int8 as Int8
from sparse_ring.recipe.onebit import OneBit as OneBit
from sparse_ring.recipe.powersgd import PowerSGD as PowerSGD
from sparse_ring.recipe.qsgd import QSGD as QSGD
from sparse_ring.recipe.quantized import QuantizedRecipe as QuantizedRecipe
from sparse_ring.recipe.randomk import RandomK as RandomK
from sparse_ring.recipe.signsgd import SignSGD as SignSGD
from sparse_ring.recipe.sparse import SelectingRecipe as SelectingRecipe
from sparse_ring.recipe.sparse import SparseRecipe as SparseRecipe
from sparse_ring.recipe.terngrad import TernGrad as TernGrad
from sparse_ring.recipe.threshold import Threshold as Threshold
from sparse_ring.recipe.topk import TopK as TopK
from sparse_ring.recipe.twobit import TwoBit as TwoBit

# By their names in lower case, as in compression="topk".
RECIPES: dict[str, type[Recipe]] = {
    recipe.__name__.lower(): recipe
    for recipe in (
        Dense,
        BF16,
        FP16,
        TopK,
        GradSA,
        DGC,
        Threshold,
        ChunkTopK,
        RandomK,
        CLTK,
        TernGrad,
        QSGD,
        Int8,
        FourBit,
        AdaptiveBits,
        TwoBit,
        OneBit,
        SignSGD,
        PowerSGD,
    )
}


def recipe_named(name: str, **settings: Any) -> Recipe:
    """Return the recipe of a name in ``RECIPES`` (any case) with the given settings; ConfigError lists the known names.

    Settings that the recipe does not have are refused by TypeError, as by its constructor.
    """
    if name.lower() not in RECIPES:
        raise ConfigError("recipe", name, f"one of {', '.join(RECIPES)}")
    return RECIPES[name.lower()](**settings)
