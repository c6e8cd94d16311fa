"""How the model of a command is computed: flags of all commands that serve."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from typer import Argument, Option

from appliance.spec import RuntimeSpec
from csnode.engine.spec import EngineSpec
from waferstream.core.errors import ConfigError
from waferstream.serving.models.places import check_place

if TYPE_CHECKING:
    from waferstream.serving.deployment import Deployment

Model = Annotated[
    Path,
    Argument(help="folder of a run or of Hugging Face, .gguf, or smollm2", metavar="MODEL_DIR"),
]


@dataclass(frozen=True)
class Computing:
    """Flags that say how a model is computed."""

    PANEL: ClassVar = "how the model is computed"

    threads: Annotated[int, Option(min=1, help="threads of a step")] = 1
    dtype: Annotated[Literal["float32", "bfloat16"], Option(help="of weights and activations")] = (
        "float32"
    )
    draft: Annotated[
        Path | None, Option(metavar="MODEL", help="smaller model, whose tokens the model verifies")
    ] = None
    wafers: Annotated[
        int | None,
        Option(min=1, max=1_000_000, help="that share the layers (default: 1; of a plan: few)"),
    ] = None
    runtime: Annotated[Literal["local", "ray"], Option(help="ray: a process for each wafer")] = (
        "local"
    )
    engine: Annotated[
        Literal["torch", "wafer", "wafer-cycles"],
        Option(help="torch, or the array of PEs, for small models"),
    ] = "torch"
    region: Annotated[int, Option(min=1, help="PEs along a side of that array")] = 512

    def deployment(self, place: Path) -> Deployment:
        """Tell that a model is loaded, import torch, and return how the model is served.

        Raises:
            ConfigError: There is no model at the place.
        """
        check_place(place)
        print(f"Loading {place}", file=sys.stderr, flush=True)
        import torch  # noqa: PLC0415  (slow)

        from waferstream.serving.deployment import Deployment  # noqa: PLC0415  (imports torch)

        torch.set_num_threads(self.threads)
        engine = EngineSpec(default=self.engine, rows=self.region, columns=self.region)
        runtime = RuntimeSpec(kind=self.runtime)
        return Deployment(place, self.wafers or 1, runtime, engine, self.dtype, self.draft)


@contextmanager
def needing_packages() -> Iterator[None]:
    """Raise ConfigError if packages of the extra ``serve`` are not there."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ConfigError(
            "serving must have its packages",
            code="serve-not-installed",
            value=error.name,
            remedy="pip install 'waferstream[serve]'",
        ) from error
