"""Which way a parameter takes, from its recipe's kind: the one place that knows all of them."""

from __future__ import annotations

import math
from collections.abc import Callable

from sparse_ring.encode import FixedCoder
from sparse_ring.gradient.agreed import AgreedParameter
from sparse_ring.gradient.base import ParameterPipeline, Pipeline
from sparse_ring.gradient.factored import FactoredParameter
from sparse_ring.gradient.owned import OwnedParameter
from sparse_ring.gradient.selected import SelectedParameter
from sparse_ring.gradient.whole import CodedParameter, ExactParameter
from sparse_ring.recipe import AgreedRecipe, FactoredRecipe, MessageRecipe, QuantizedRecipe, Recipe, SelectingRecipe


def _quantized(
    shared: Pipeline, recipe: QuantizedRecipe, number: int, name: str, shape: tuple[int, ...], key: str | None
) -> ParameterPipeline:
    if recipe.has_owners(shared.size):
        return OwnedParameter(shared, recipe, number, name, shape, key)
    feedback, coder = recipe.error_feedback(math.prod(shape), shared.kernels), recipe.coder_with_warmup()
    seed = shared.seed(recipe.seed)
    return CodedParameter(
        shared, recipe, number, name, shape, key, coder=coder, feedback=feedback, seed=seed, counted=True
    )


# A kind of recipe, and what its compressed parameters become.
WAYS: tuple[tuple[type[Recipe], Callable[..., ParameterPipeline]], ...] = (
    (SelectingRecipe, SelectedParameter),
    (QuantizedRecipe, _quantized),
    (AgreedRecipe, AgreedParameter),
    (FactoredRecipe, FactoredParameter),
)


def pipeline_of(
    shared: Pipeline,
    recipe: Recipe,
    number: int,
    name: str,
    shape: tuple[int, ...],
    key: str | None = None,
    *,
    compressed: bool,
    in_message: bool,
) -> ParameterPipeline | None:
    """Return a parameter's way; None where it takes the dense ring. Raises TypeError for a kind of recipe that has none."""
    if compressed:
        for kind, way in WAYS:
            if isinstance(recipe, kind):
                return way(shared, recipe, number, name, shape, key)
        kinds = ", ".join(kind.__name__ for kind, _ in WAYS)
        raise TypeError(f"{recipe!r} compresses '{name}', but is of none of the kinds that say how: {kinds}.")
    if not in_message:
        return None
    if not isinstance(recipe, MessageRecipe):
        raise TypeError(f"{recipe!r} sends messages, but is no MessageRecipe.")
    if recipe.small_code is None:
        return ExactParameter(shared, recipe, number, name, shape, key)
    feedback = recipe.small_feedback(math.prod(shape), shared.kernels)
    return CodedParameter(
        shared, recipe, number, name, shape, key, coder=FixedCoder(recipe.small_code), feedback=feedback
    )
