"""``waferstream serve PLACE --plan`` and ``--simulate``: a service before it is there."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import typer
from typer import Option

from appliance.spec import load_cluster
from waferstream.cli.frame.output import answer, prints_json
from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.machine.hardware import CS3, WaferSpec
from waferstream.machine.hardware.choice import choose
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.machine.regions.decoder import Decoder
from waferstream.machine.regions.published import DECODERS, DRAFTS, name_unknown
from waferstream.machine.regions.service import SERVICE, Service
from waferstream.reports.service import load
from waferstream.reports.service.plan import ServicePlan
from waferstream.serving.models.places import PACKAGED, check_place
from waferstream.simulator import service_requests

log = logging.getLogger("waferstream")

CONTEXT = 8192
"""Tokens for which a sequence has room, unless the model has fewer."""

_POISSON_REQUESTS = 1000
_MOST_USERS = 10_000  # some 20 seconds
_MOST = 1_000_000  # of anything that is counted, against typing errors

_WITH_DEFAULT = {"--prompt_tokens", "--completion_tokens", "--seed"}
"""Flags that have a value where they are not typed."""


@dataclass(frozen=True)
class Planning:
    """Flags of plans and simulations of a service."""

    PANEL: ClassVar = "plan and simulate, without weights: MODEL_DIR may name a published model"

    plan: Annotated[bool, Option(help="tell where the model lies on wafers")] = False
    simulate: Annotated[bool, Option(help="tell how fast it is under load")] = False
    system: Annotated[
        Literal["CS-2", "CS-3"] | None,
        Option(help="of each wafer (default: that of --cluster, else CS-3)"),
    ] = None
    cluster: Annotated[Path | None, Option(help="cluster.yaml, whose system has defects")] = None
    side: Annotated[
        int | None, Option(min=1, max=_MOST, help="PEs along a region (default: the fastest)")
    ] = None
    context: Annotated[
        int | None, Option(min=1, max=_MOST, help="tokens of a sequence (default: 8192)")
    ] = None
    users: Annotated[
        int | None, Option(min=1, max=_MOST_USERS, help="who ask in turn (default: 1 to 1,000)")
    ] = None
    rate: Annotated[
        float | None, Option(min=1e-6, max=_MOST, help="requests per second that come at random")
    ] = None
    requests: Annotated[Path | None, Option(help="JSON lines of arrival_s and tokens")] = None
    prompt_tokens: Annotated[int, Option(help="mean of prompts")] = 1000
    completion_tokens: Annotated[int, Option(help="mean of answers")] = 200
    seed: Annotated[int, Option(help="of arrivals and lengths")] = 1
    out: Annotated[Path | None, Option(help="picture, .png or .svg")] = None

    def __post_init__(self) -> None:
        for together in (("plan", "simulate"), ("users", "rate", "requests")):
            first, *others = [name for name in together if getattr(self, name)] or [""]
            if others:
                raise typer.BadParameter(f"not allowed with --{first}", param_hint=f"--{others[0]}")

    @property
    def is_asked(self) -> bool:
        """Whether a plan or a simulation is asked for."""
        return self.plan or self.simulate

    def check_absent(self) -> None:
        """Raise ConfigError for a flag that only plans and simulations take."""
        given = {f"--{each.name}": getattr(self, each.name) for each in fields(self)}
        for flag, value in {**given, "--json": prints_json()}.items():
            if value and flag not in _WITH_DEFAULT:
                raise ConfigError(
                    f"{flag} must come with --plan or --simulate",
                    code="argument-without-plan",
                    where=flag,
                    value=value,
                    remedy="give --plan or --simulate, or leave it out",
                )

    def run(self, model_dir: Path, wafers: int | None) -> int:
        """Print a plan or a simulation, and draw it; return the exit code.

        Raises:
            ConfigError: An argument is wrong, or the model is not known.
            ApplianceResourceExhausted: It does not fit.
        """
        _check_out(self.out)
        model, longest = _decoder(model_dir)
        context = self.context or min(CONTEXT, longest)
        spec = SERVICE.model_copy(update={"system": self._system()})
        name = model_dir.name
        service = Service(model, context, spec, DRAFTS.get(name), wafers, self.side)
        found = (
            ServicePlan(name, service, context, wafers or spec.most_wafers)
            if self.plan
            else self._loads(name, service)
        )
        answer(found.as_json(), found.text())
        if self.out is not None:
            _draw(self.out, found)
        return 0

    def _loads(self, name: str, service: Service) -> load.LoadReport:
        """Return the load that the arguments ask for."""
        lengths = validate(
            service_requests.Lengths,
            {"prompt": self.prompt_tokens, "output": self.completion_tokens},
            "--prompt_tokens, --completion_tokens",
        )
        if self.requests is not None:
            asked = service_requests.recorded(self.requests)
            lengths = service_requests.Lengths.of(asked)
            point = load.of_requests(service, self.requests.name, asked)
        elif self.rate is not None:
            asked = service_requests.poisson(self.rate, _POISSON_REQUESTS, lengths, self.seed)
            point = load.of_requests(service, f"{self.rate:g}/s", asked)
        elif self.users is not None:
            point = load.of_closed_loop(service, self.users, lengths, self.seed)
        else:
            return load.curve(name, service, lengths, self.seed)
        return load.LoadReport(name, service, lengths, (point,))

    def _system(self) -> WaferSpec:
        """Return the wafer, without its defects."""
        if self.cluster is None:
            return SYSTEMS[self.system or CS3.name]
        choice = choose(load_cluster(self.cluster).machine, self.system, "--system")
        if choice.note:
            log.warning(choice.note)
        return choice.machine.system


def _draw(path: Path, found: ServicePlan | load.LoadReport) -> None:
    from waferstream.reports.service import load_picture, plan_picture  # noqa: PLC0415  (slow)

    if isinstance(found, ServicePlan):
        plan_picture.plan_picture(path, found)
    else:
        load_picture.load_picture(path, found)


def _decoder(place: Path) -> tuple[Decoder, int]:
    """Return the shape of a model and the most tokens that it reads."""
    name, is_here = str(place), place.exists()
    if not is_here and name in DECODERS:
        return DECODERS[name], CONTEXT
    if is_here or name in PACKAGED:
        from waferstream.serving.models.loading import decoder_of  # noqa: PLC0415  (torch is slow)

        check_place(place)
        return decoder_of(place)
    raise name_unknown(name)


def _check_out(path: Path | None) -> None:
    if path is not None and path.suffix not in (".png", ".svg"):
        raise ConfigError(
            "--out must name a picture",
            code="out-of-range",
            where="--out",
            value=path,
            rule="a path that ends in .png or .svg",
        )
