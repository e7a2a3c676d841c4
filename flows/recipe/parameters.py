"""The parameters of `recipe`, declared once: Prefect's form and the options of `toolformer run`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from flows.forms.fields import FORM, DataFolder, ModelName, OneOf, Option

# In an installed package they lie beside this module, in a clone at its root.
_INSTALLED = Path(__file__).parent / "shipped"
SHIPPED = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).parents[2] / "recipes"


def shipped() -> Iterable[str]:
    """Return the names of the recipes that come with the program."""
    return sorted(file.stem for file in SHIPPED.glob("*.yaml"))


class RecipeParameters(BaseModel):
    """A recipe, and where its results lie."""

    model_config = FORM

    recipe: Annotated[str, OneOf(shipped, "^/.+[.]ya?ml$"), Option(argument=True)] = Field(
        description="The recipe's file, or the name of one that comes with the program: demo, ..."
    )
    data: DataFolder = Field("toolformer-data", description="Data folder or URL of all steps")
    model: ModelName | None = Field(
        None, description="In place of the model that the recipe names for all its steps (default: that one)"
    )
    limit: int | None = Field(
        None,
        ge=10,
        description="At most this many documents of each build, steps of each training and items of each evaluation "
        "(default: as the recipe says)",
    )
