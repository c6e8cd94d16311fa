"""What a run tells of its roles adds up to what its emulated clock says."""

from __future__ import annotations

from collections import defaultdict

import pytest

from tests.support.timing.cluster_timings import make_machine, make_program, make_timing, run
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.installation import InputFeed, Installation
from waferstream.core.units import seconds
from waferstream.machine.attribution import StepTiming
from waferstream.management.model.telemetry import WORKFLOW_METRICS, Telemetry
from waferstream.training.observers.observer import TrainingLog
from waferstream.training.observers.telemetry import TelemetryMeter

SYSTEMS, SERVERS = 6, 2
PROGRAM = make_program(layers=3, micro_batches=9)
TRAINING = Installation(
    PROGRAM, (), plan_streams(PROGRAM, SERVERS), Rounds(9, SYSTEMS), InputFeed(tuple, ()), None
)
STEPS = run(make_timing(PROGRAM, num_nodes=SYSTEMS, num_servers=SERVERS), steps=4)

Numbers = dict[str, dict[tuple[str, ...], float]]


def log_of(steps: list[StepTiming], rate: float = 3.0) -> TrainingLog:
    return TrainingLog(
        step=steps[-1].step if steps else 4, losses=((4, 2.5),), gradient_norm=None,
        tensor_norms={}, learning_rate=None, loss_scale=None, rate=rate, global_rate=rate,
        emulated_rate=5.0, seconds=1.0, timings=tuple(steps), steps_left_in_stage=0, steps_left=8,
    )  # fmt: skip


def by_metric(telemetry: Telemetry) -> Numbers:
    found: Numbers = defaultdict(dict)
    for sample in telemetry.samples:
        found[sample.metric][sample.labels] = sample.value
    return found


@pytest.fixture(scope="module")
def numbers() -> Numbers:
    meter = TelemetryMeter(make_machine(), SYSTEMS)
    for log in (log_of(STEPS[:2]), log_of(STEPS[2:])):
        meter.count(log)
    return by_metric(meter.telemetry(log, TRAINING))


def test_run_tells_every_number_once(numbers: Numbers) -> None:
    assert numbers.keys() == WORKFLOW_METRICS.keys()
    assert numbers["step"][()] == 4
    assert numbers["last_step"][()] == 12
    assert numbers["loss"][()] == 2.5


def test_causes_of_each_system_sum_to_the_time_of_all_steps(numbers: Numbers) -> None:
    spent: dict[str, float] = defaultdict(float)
    for (role, _), spent_s in numbers["role_seconds_total"].items():
        spent[role] += spent_s
    whole_s = seconds(sum(step.duration_ps for step in STEPS))
    assert spent == pytest.approx(dict.fromkeys((f"csx-{i}" for i in range(SYSTEMS)), whole_s))


def test_time_from_step_to_step_is_told_of_each_server(numbers: Numbers) -> None:
    roles = {(f"wgt-{index}",) for index in range(SERVERS)}
    for name in ("iteration", "cross_iteration", "backward_iteration"):
        assert numbers[f"{name}_seconds"].keys() == roles
    assert set(numbers["iteration_seconds"].values()) == {seconds(STEPS[-1].duration_ps)}


def test_what_servers_send_a_switch_copies_to_its_children(numbers: Numbers) -> None:
    """The tree of six systems has a root with two switches below it."""
    rates = numbers["bandwidth_bytes_per_second"]
    of_servers = rates["wgt-0", "down"] + rates["wgt-1", "down"]
    assert rates["br-0", "down"] == pytest.approx(2 * of_servers)
    assert rates["br-1", "down"] == pytest.approx(3 * of_servers)
    assert rates["csx-5", "up"] == rates["br-2", "up"] == rates["br-0", "up"]


def test_shares_are_at_most_one(numbers: Numbers) -> None:
    shares = numbers["utilisation_ratio"].values()
    assert all(0 < share <= 1 for share in shares)
    assert len(shares) == SYSTEMS + SERVERS + 3


def test_energy_is_power_over_the_emulated_time(numbers: Numbers) -> None:
    watts = sum(numbers["power_watts"].values())
    whole_s = seconds(sum(step.duration_ps for step in STEPS))
    assert numbers["energy_joules_total"][()] == pytest.approx(watts * whole_s)


def test_without_an_emulated_machine_only_the_run_has_numbers() -> None:
    meter = TelemetryMeter(make_machine(), 1)
    assert by_metric(meter.telemetry(log_of([]), None)).keys() == {
        "step", "last_step", "loss", "measured_samples_per_second",
    }  # fmt: skip


def test_number_that_is_not_finite_is_left_out() -> None:
    meter = TelemetryMeter(make_machine(), 1)
    assert "measured_samples_per_second" not in by_metric(
        meter.telemetry(log_of([], rate=float("inf")), None)
    )
