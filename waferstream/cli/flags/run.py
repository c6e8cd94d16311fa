"""The flags of a run that are no keys of its configuration.

Names, short forms and defaults are those of the vendor's command line.
"""

from __future__ import annotations

from waferstream.cli.flags.flag import Flag, words_of
from waferstream.config.params import Mode
from waferstream.core.units import parse_count
from waferstream.machine.hardware.named import PRESETS
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.machine.record import DEFAULT_LIMIT

WAFER_TRACE = Flag(
    "wafer_trace",
    "layer, its kernel and a region: decoder.0 or decoder.0:softmax@4x6",
    positional=True,
    required=True,
    metavar="LAYER",
)
"""How a command takes what ``run.py`` takes as ``--wafer_trace``."""

SIMULATION_FLAGS: tuple[Flag, ...] = (
    Flag(
        "sweep",
        "numbers of systems to simulate besides --num_csx, of which details are printed: 1,2,4-8 "
        "or 1-192 or 1-2048:x2 (default: powers of two up to --num_csx)",
    ),
    Flag(
        "weak_scaling",
        "simulate a batch that grows: every system gets the batch of the params file",
        kind=bool,
    ),
    Flag(
        "sparsity_step",
        "simulate the zeros of sparse weights as this step finds them (default: the mean over the "
        "steps of the run)",
        kind=int,
    ),
    Flag(
        "system",
        "CS systems to simulate and compare: CS-2, CS-3 or both (default: that of cluster.yaml)",
        **words_of(SYSTEMS),
        metavar="SYSTEM",
    ),
    Flag(
        "machine",
        "clusters that people name to simulate and compare, such as condor-galaxy-1; `waferstream "
        "machine list` has all (default: the machine of cluster.yaml)",
        **words_of(PRESETS),
        metavar="NAME",
    ),
    Flag(
        "token_budget",
        "number of training tokens, such as 300B or 1.4e12: adds time, energy and cost to every "
        "row of the simulation",
        collect=parse_count,
    ),
    Flag(
        "system_hour_price",
        "price of one system-hour in USD (default: machine.power.system_hour_usd, 53.5)",
        kind=float,
    ),
    Flag(
        "system_kw",
        "power of one system under load in kW (default: 22.8 for a CS-2, 23 for a CS-3)",
        kind=float,
    ),
    Flag(
        "kwh_price",
        "price of a kilowatt-hour in USD (default: machine.power.kwh_usd, 0.08)",
        kind=float,
    ),
    Flag(
        "allow_overflow",
        "predict a micro-batch that does not fit the wafer as if it did, and state what is missing",
        kind=bool,
    ),
    Flag(
        "activation_zeros",
        "run the model on a few samples and state the zeros that each product reads, beside the "
        "simulation; the weights are initial ones, or those of --checkpoint_path",
        kind=bool,
    ),
    Flag(
        "explain",
        "say why the micro-batch of the simulation has its size, and what limits the next one",
        kind=bool,
    ),
)

RUN_FLAGS: tuple[Flag, ...] = (
    Flag("params", "YAML file with model, optimizer, data and loop (required)", short="p"),
    Flag(
        "mode",
        "train, eval, eval_all or train_and_eval, which evaluates where evaluation data is "
        "configured (default)",
        short="m",
        kind=Mode,
        metavar="MODE",
    ),
    Flag(
        "cluster",
        "YAML file of the machine (default: cluster.yaml in this folder, else beside run.py)",
    ),
    Flag(
        "local",
        "run all roles in this process: for runtime.kind: local of the machine's file",
        kind=bool,
    ),
    Flag(
        "fault",
        "let roles fail, such as csx-1@51:kill (ROLE@STEP[/MOMENT]:KIND[=SECONDS][*TIMES])",
        kind=list[str],
        metavar="FAULT",
    ),
    Flag(
        "min_num_csx",
        "let the appliance shrink the job to so many systems (default: --num_csx)",
        kind=int,
    ),
    Flag("session", "session of the appliance (default: default)"),
    Flag("detach", "submit to the appliance, and return at once", kind=bool),
    Flag("trace", "write a Perfetto trace of emulated and measured time to this file"),
    Flag(
        "trace_limit",
        f"most activities of each clock in the trace (default: {DEFAULT_LIMIT:,})",
        kind=int,
    ),
    Flag(
        "wafer_trace",
        "write a picture and an animation of one kernel of a layer on the simulated wafer, and run "
        "nothing else: LAYER[:KERNEL][@ROWSxCOLUMNS], such as decoder.0 or decoder.0:softmax@4x6",
        metavar="LAYER",
    ),
    Flag(
        "simulate",
        "predict the time of training on --num_csx systems, without training",
        kind=bool,
    ),
    *SIMULATION_FLAGS,
    Flag(
        "json",
        "print the result as JSON: what is in run_summary.json, or in simulation.json with "
        "--simulate; text goes to standard error",
        kind=bool,
    ),
    Flag(
        "shrink",
        "scale the model down to so many parameters at most, such as 2M, with small batches, and "
        "random data where this host lacks those of the file; prints what differs",
        collect=parse_count,
    ),
    Flag("debug", "show the stack trace of errors", kind=bool),
    Flag("traceback", "the same as --debug", kind=bool),
)
