"""Names and recipes of an optimizer's parameters, as all ranks derive them alike."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import torch

from sparse_ring.optimizer.reducer import NamedWithRecipe
from sparse_ring.recipe import Recipe, recipe_named

RECIPE_KEY = "compression"
DENSITY_KEY = "density"


class Naming:
    """What the user called the parameters, also those that the optimizer does not have yet.

    named_parameters
        ``model.named_parameters()``; None: parameters are called ``"parameter.<group>.<position>"``.

    Raises ValueError: duplicate names, entries that are not (name, tensor).
    """

    def __init__(self, named_parameters: Iterable[tuple[str, torch.Tensor]] | None) -> None:
        self._given = named_parameters is not None
        self._named: dict[int, str] = {}
        # Kept, so that no other tensor takes over the id of one that is gone.
        self._tensors: list[torch.Tensor] = []
        names: set[str] = set()
        duplicates = set()
        for item in named_parameters or ():
            if not isinstance(item, tuple) or len(item) != 2 or not isinstance(item[0], str):
                raise ValueError("named_parameters must be (name, tensor) tuples, as model.named_parameters() yields.")
            name, tensor = item
            duplicates.update({name} & names)
            names.add(name)
            # A tied parameter has several names; the first counts.
            self._named.setdefault(id(tensor), name)
            self._tensors.append(tensor)
        if duplicates:
            raise ValueError(f"named_parameters has duplicate names: {', '.join(sorted(duplicates))}.")

    def named(self, groups: Iterable[tuple[int, dict[str, Any]]], recipe: Recipe) -> list[NamedWithRecipe]:
        """Return the parameters of numbered groups with names and recipes.

        In the order in which they were named, so that ranks agree whatever the order in their groups. A group's
        ``"compression"`` (a recipe or its name) and ``"density"`` replace those of ``recipe``.

        Raises ValueError: parameters without a name, a density for a recipe without one.
        """
        found: dict[int, NamedWithRecipe] = {}
        missing = []
        for number, group in groups:
            own = group_recipe(number, group, recipe)
            for position, parameter in enumerate(group["params"]):
                generic = f"parameter.{number}.{position}"
                name = self._named.get(id(parameter), None if self._given else generic)
                if name is None:
                    missing.append(generic)
                else:
                    found[id(parameter)] = (name, parameter, own)
        if missing:
            raise ValueError(
                f"{len(missing)} optimizer parameters are not in named_parameters (by group and position: "
                f"{', '.join(missing[:5])}). Give model.named_parameters() of every model that the optimizer updates."
            )
        return list(self._ordered(found))

    def _ordered(self, found: Mapping[int, NamedWithRecipe]) -> Iterator[NamedWithRecipe]:
        if not self._given:
            yield from found.values()
            return
        for key in self._named:
            if key in found:
                yield found[key]


def group_recipe(number: int, group: Mapping[str, Any], default: Recipe) -> Recipe:
    """Return the recipe of one parameter group. Raises ValueError for a density where the recipe has none."""
    chosen: Recipe | str = group.get(RECIPE_KEY, default)
    recipe = recipe_named(chosen) if isinstance(chosen, str) else chosen
    density = group.get(DENSITY_KEY)
    if density is None:
        return recipe
    if not any(field.name == DENSITY_KEY for field in fields(recipe)):
        raise ValueError(f"Parameter group {number} has density={density}, but {recipe!r} has none.")
    asked: dict[str, Any] = {DENSITY_KEY: density}
    return replace(recipe, **asked)
