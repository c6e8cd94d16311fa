"""One simulation from command line to files.

model_dir/simulation/
    simulation.json     every number, with machine and commit
    simulation.png      pace over systems, and where a step goes
    wafer.png           what lies where on a wafer, and when
    step_trace.json     one step for ui.perfetto.dev
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

import torch

from appliance.spec import ClusterSpec, load_cluster
from modelzoo.data.registry import data_processor
from modelzoo.models.registry import model_config
from modelzoo.models.transformer_config import LanguageConfig
from simulator.simulator import Simulator
from timing.hardware import MachineSpec
from timing.trace import write_trace
from waferstream.config.params import Params, TrainerConfig
from waferstream.reports.economics import TrainingBill, training_bill
from waferstream.reports.error_bars import ERROR_BARS
from waferstream.reports.host import git_commit
from waferstream.reports.summary import ModelSummary
from waferstream.scaling.sweep import powers_up_to
from waferstream.simulation.capture import CapturedStep, capture_step
from waferstream.simulation.request import SimulationRequest
from waferstream.simulation.results import SIMULATION_NAME, Detail, Simulation
from waferstream.simulation.study import Study
from waferstream.simulation.text import headline, simulation_text
from waferstream.training.session import check_trace, make_backend
from wsc.core.errors import ConfigError
from wsc.core.files import write_json
from wsc.core.loading import Loading
from wsc.core.program import Program
from wsc.version import VERSION

log = logging.getLogger("waferstream")

TRACED_ROUNDS = 8
"""A longer step is cut for the trace: its rounds are all alike."""


def run_simulation(
    params: Params, request: SimulationRequest, cluster_file: Path | None, trace: Path | None
) -> None:
    """Do what ``--simulate`` asks for; WaferStreamError if it cannot be done."""
    if trace is not None:
        check_trace(trace)
    torch.set_num_threads(1)
    cluster = load_cluster(cluster_file) if cluster_file else ClusterSpec()
    asked = params.trainer.init.backend.cluster_config.num_csx
    counts = request.sweep or powers_up_to(asked)
    _check(params, request, counts[-1])
    folder = _make_folder(params.trainer.init.model_dir)
    backend = make_backend(params, cluster)
    try:
        captured = capture_step(params, backend)
        num_servers = backend.size().num_servers
    finally:
        backend.shutdown()
    study = study_of(params, cluster, captured, num_servers)
    simulation = simulate(study, params, counts, asked if asked in counts else counts[-1], request)
    write_json(folder / SIMULATION_NAME, simulation)
    _draw(folder / "simulation.png", simulation)
    _draw_wafer(folder / "wafer.png", study, simulation)
    _trace(trace or folder / "step_trace.json", study, simulation.detail.num_csx)
    print(f"\n{simulation_text(simulation)}\n\n{folder}", flush=True)


def study_of(params: Params, cluster: ClusterSpec, step: CapturedStep, num_servers: int) -> Study:
    """The study of a captured step on the machine of a cluster."""
    assert params.trainer.fit is not None, "checked when the step was captured"
    simulator = Simulator(
        step.program,
        cluster.machine,
        num_servers,
        update=step.update,
        clips_by_norm=step.clips_by_norm,
        loading=training_loading(params.trainer),
    )
    return Study(
        simulator,
        params.trainer.fit.train_dataloader.batch_size,
        step.tokens_per_sample,
        params.trainer.init.micro_batch_policy("train"),
    )


def training_loading(trainer: TrainerConfig) -> Loading:
    """Who loads the samples of a configuration that trains."""
    assert trainer.fit is not None
    data = data_processor(trainer.fit.train_dataloader.dump(), "trainer.fit.train_dataloader")
    workers = trainer.init.backend.cluster_config.num_workers_per_csx
    return replace(data.loading, num_workers_per_csx=workers)


def simulate(
    study: Study, params: Params, counts: tuple[int, ...], closely: int, request: SimulationRequest
) -> Simulation:
    """Predict a step on every number of systems, and look at the one on ``closely`` of them."""
    init, machine = params.trainer.init, study.simulator.machine
    start_s = time.perf_counter()
    points = study.curve(counts)
    curve_s = time.perf_counter() - start_s
    looked_at = points[counts.index(closely)]
    program = study.costed(closely).program
    size = study.policy.requested
    return Simulation(
        version=VERSION,
        commit=git_commit(Path(__file__).parent),
        system=machine.system.name,
        model=ModelSummary(str(init.model.dump()["name"]), _parameters(program)),
        batch_size=study.batch_size,
        tokens_per_sample=study.tokens_per_sample,
        micro_batch_size=size if isinstance(size, int) else study.policy.name,
        stream_dtype=program.stream_dtype,
        optimizer=init.optimizer.class_name if init.optimizer else "no optimizer",
        points=points,
        detail=Detail(
            num_csx=closely,
            memory=study.memory(closely),
            starting=study.starting(closely),
            layers=study.layers(closely),
            bill=_bill(request, looked_at.tokens_per_s, closely),
            prices=request.prices,
            effective_batch=study.effective_batch(closely),
            fill_wafer_size=study.fill_wafer_size(closely),
        ),
        error_bar=ERROR_BARS.get(machine.system.name),
        as_published=machine == MachineSpec.model_validate({"system": machine.system.name}),
        curve_s=curve_s,
        machine=machine.model_dump(mode="json"),
    )


def _check(params: Params, request: SimulationRequest, num_csx: int) -> None:
    """What can be told before minutes go into capturing; ConfigError says it."""
    init, fit = params.trainer.init, params.trainer.fit
    if fit is not None:
        policy = init.micro_batch_policy("train")
        policy.check(fit.train_dataloader.batch_size, num_csx, simulated=True)
    model = model_config(init.model.dump(), "trainer.init.model")
    if request.token_budget is not None and not isinstance(model, LanguageConfig):
        raise ConfigError(
            "the model reads no tokens",
            where="--token_budget",
            value=request.token_budget,
            remedy="leave it out",
        )


def _make_folder(model_dir: Path) -> Path:
    folder = model_dir / "simulation"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            "the model folder cannot be written", where=str(model_dir), value=error.strerror
        ) from error
    return folder


def _parameters(program: Program) -> int:
    return sum(spec.num_elements for spec in program.parameters)


def _bill(
    request: SimulationRequest, tokens_per_s: float | None, num_csx: int
) -> TrainingBill | None:
    if request.token_budget is None:
        return None
    assert tokens_per_s is not None, "a budget is for a model that reads tokens"
    return training_bill(request.token_budget, tokens_per_s, num_csx, request.prices)


def _draw(path: Path, simulation: Simulation) -> None:
    # matplotlib takes its time to import; a message comes before it
    from waferstream.reports.simulation_picture import SimulatedPace, simulation_picture  # noqa: PLC0415

    paces = [SimulatedPace(p.num_csx, p.samples_per_s, p.attribution_ps) for p in simulation.points]
    simulation_picture(path, headline(simulation), paces, simulation.error_bar)


def _draw_wafer(path: Path, study: Study, simulation: Simulation) -> None:
    from waferstream.reports.wafer_picture import wafer_picture  # noqa: PLC0415  (as above)

    size = simulation.point.micro_batch_size
    of = f"one of {simulation.detail.num_csx:,}, micro-batch of {size:,}"
    title = f"{headline(simulation)}: {of}"
    wafer_picture(path, study.simulator.sram_plan(size), title)


def _trace(path: Path, study: Study, num_csx: int) -> None:
    """Write the second step, which begins in the midst of the first one's streams."""
    costed = study.costed(num_csx)
    dealt = min(costed.program.num_micro_batches, TRACED_ROUNDS * num_csx)
    clock = study.simulator.clock(costed.with_num_micro_batches(dealt), num_csx, record=True)
    clock.step(costed.program.mode, 1)
    clock.occupancies.clear()
    clock.step(costed.program.mode, 2)
    write_trace(path, clock.occupancies, {})
    cut = "" if dealt == costed.program.num_micro_batches else f" of {TRACED_ROUNDS} rounds"
    log.info("Trace of a step%s: %s (open it in ui.perfetto.dev)", cut, path)
