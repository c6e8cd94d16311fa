"""``waferstream serve PLACE --plan`` and ``--simulate``: a service before it is there."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from waferstream.core.config import validate
from waferstream.core.errors import ConfigError
from waferstream.host.files import json_text
from waferstream.machine.hardware import CS3, WaferSpec
from waferstream.machine.hardware.choice import choose
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.machine.regions import DECODERS, DRAFTS, SERVICE, Decoder, Service, name_unknown
from waferstream.reports.service import load
from waferstream.reports.service.plan import ServicePlan
from waferstream.simulator import service_requests

log = logging.getLogger("waferstream")

CONTEXT = 8192
"""Tokens for which a sequence has room, unless the model has fewer."""

_POISSON_REQUESTS = 1000
_MOST_USERS = 10_000  # some 20 seconds
_MOST = 1_000_000  # of anything that is counted, against typing errors


def add_planning(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of plans and simulations."""
    group = parser.add_argument_group(
        "plan and simulate", "without weights: MODEL_DIR may be the name of a published model"
    )
    kind = group.add_mutually_exclusive_group()
    kind.add_argument("--plan", action="store_true", help="tell where the model lies on wafers")
    kind.add_argument("--simulate", action="store_true", help="tell how fast it is under load")
    group.add_argument(
        "--system",
        choices=list(SYSTEMS),
        help="of each wafer (default: that of --cluster, else CS-3)",
    )
    group.add_argument("--cluster", type=Path, help="cluster.yaml, whose system has defects")
    group.add_argument("--side", type=int, help="PEs along a region (default: the fastest)")
    group.add_argument("--context", type=int, help="tokens of a sequence (default: 8192)")
    load_of = group.add_mutually_exclusive_group()
    load_of.add_argument("--users", type=int, help="who ask in turn (default: 1 to 1,000)")
    load_of.add_argument("--rate", type=float, help="requests per second that come at random")
    load_of.add_argument("--requests", type=Path, help="JSON lines of arrival_s and tokens")
    group.add_argument(
        "--prompt_tokens", type=int, default=1000, help="mean of prompts (default: 1000)"
    )
    group.add_argument(
        "--completion_tokens", type=int, default=200, help="mean of answers (default: 200)"
    )
    group.add_argument("--seed", type=int, default=1, help="of arrivals and lengths (default: 1)")
    group.add_argument("--out", type=Path, help="picture, .png or .svg")
    group.add_argument("--json", action="store_true", help="print JSON")


def check_serves(given: argparse.Namespace) -> None:
    """Raise ConfigError for an argument that only plans and simulations take."""
    for name in (
        "system",
        "cluster",
        "side",
        "context",
        "users",
        "rate",
        "requests",
        "out",
        "json",
    ):
        if getattr(given, name):
            raise ConfigError(
                f"--{name} must come with --plan or --simulate",
                code="argument-without-plan",
                where=f"--{name}",
                value=getattr(given, name),
                remedy="give --plan or --simulate, or leave it out",
            )


def run_planning(given: argparse.Namespace) -> int:
    """Print a plan or a simulation, and draw it; return the exit code.

    Raises:
        ConfigError: An argument is wrong, or the model is not known.
        ApplianceResourceExhausted: It does not fit.
    """
    for name in ("wafers", "context", "side"):
        _check_range(f"--{name}", getattr(given, name), 1, _MOST)
    _check_range("--users", given.users, 1, _MOST_USERS)
    _check_range("--rate", given.rate, 1e-6, _MOST)
    _check_out(given.out)
    model, longest = _decoder(given.model_dir)
    context = given.context or min(CONTEXT, longest)
    spec = SERVICE.model_copy(update={"system": _system(given)})
    name = given.model_dir.name
    service = Service(model, context, spec, DRAFTS.get(name), given.wafers, given.side)
    found = (
        ServicePlan(name, service, context, given.wafers or spec.most_wafers)
        if given.plan
        else _loads(name, service, given)
    )
    print(json_text(found.as_json()) if given.json else found.text(), flush=True)
    if given.out is not None:
        _draw(given.out, found)
    return 0


def _draw(path: Path, found: ServicePlan | load.LoadReport) -> None:
    """Draw a plan or a load; matplotlib is slow to import."""
    if isinstance(found, ServicePlan):
        from waferstream.reports.service.plan_picture import plan_picture  # noqa: PLC0415

        plan_picture(path, found)
    else:
        from waferstream.reports.service.load_picture import load_picture  # noqa: PLC0415

        load_picture(path, found)


def _loads(name: str, service: Service, given: argparse.Namespace) -> load.LoadReport:
    """Return the load that the arguments ask for."""
    lengths = validate(
        service_requests.Lengths,
        {"prompt": given.prompt_tokens, "output": given.completion_tokens},
        "--prompt_tokens, --completion_tokens",
    )
    if given.requests is not None:
        asked = service_requests.recorded(given.requests)
        lengths = service_requests.Lengths.of(asked)
        point = load.of_requests(service, given.requests.name, asked)
    elif given.rate is not None:
        asked = service_requests.poisson(given.rate, _POISSON_REQUESTS, lengths, given.seed)
        point = load.of_requests(service, f"{given.rate:g}/s", asked)
    elif given.users is not None:
        point = load.of_closed_loop(service, given.users, lengths, given.seed)
    else:
        return load.curve(name, service, lengths, given.seed)
    return load.LoadReport(name, service, lengths, (point,))


def _decoder(place: Path) -> tuple[Decoder, int]:
    """Return the shape of a model and the most tokens that it reads."""
    name, is_here = str(place), place.exists()
    if not is_here and name in DECODERS:
        return DECODERS[name], CONTEXT
    # torch is slow to import
    from waferstream.serving.models.gguf_file import PACKAGED  # noqa: PLC0415
    from waferstream.serving.models.loading import decoder_of  # noqa: PLC0415

    if is_here or name in PACKAGED:
        return decoder_of(place)
    raise name_unknown(name)


def _system(given: argparse.Namespace) -> WaferSpec:
    """Return the wafer, without its defects."""
    if given.cluster is None:
        return SYSTEMS[given.system or CS3.name]
    from appliance.spec import load_cluster  # noqa: PLC0415  (imports torch: slow)

    choice = choose(load_cluster(given.cluster).machine, given.system, "--system")
    if choice.note:
        log.warning(choice.note)
    return choice.machine.system


def _check_range(flag: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise ConfigError(
            f"{flag} must be in its range",
            code="out-of-range",
            where=flag,
            value=value,
            rule=f"{least:g} to {most:,}",
        )


def _check_out(path: Path | None) -> None:
    if path is not None and path.suffix not in (".png", ".svg"):
        raise ConfigError(
            "--out must name a picture",
            code="out-of-range",
            where="--out",
            value=path,
            rule="a path that ends in .png or .svg",
        )
