"""The flags of a run that are no keys of its configuration.

Names, short forms and defaults are those of the vendor's command line.
"""

from __future__ import annotations

from functools import partial

from waferstream.cli.flags.flag import Flag, words_of
from waferstream.config.params import Mode
from waferstream.core.units import parse_count
from waferstream.machine.hardware.named import PRESETS
from waferstream.machine.hardware.wafer import SYSTEMS
from waferstream.machine.record import DEFAULT_LIMIT

_switch = partial(Flag, kind=bool)

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
    _switch("weak_scaling", "simulate a batch that grows: every system gets that of the file"),
    Flag("sparsity_step", "step whose zeros are simulated (default: the mean of all)", kind=int),
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
    Flag("token_budget", "tokens, as 300B: adds time, energy and cost", collect=parse_count),
    Flag("system_hour_price", "USD of an hour of one system (default: 53.5)", kind=float),
    Flag("system_kw", "kW of one system under load (default: CS-2 22.8, CS-3 23)", kind=float),
    Flag("kwh_price", "USD of a kilowatt-hour (default: 0.08)", kind=float),
    _switch(
        "allow_overflow",
        "predict a micro-batch that does not fit the wafer as if it did, and state what is missing",
    ),
    _switch(
        "activation_zeros",
        "run the model on a few samples and state the zeros that each product reads, beside the "
        "simulation; the weights are initial ones, or those of --checkpoint_path",
    ),
    _switch(
        "explain",
        "say why the micro-batch of the simulation has its size, and what limits the next one",
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
    _switch("local", "run all roles in this process, as runtime.kind: local does"),
    Flag(
        "fault",
        "let roles fail, such as csx-1@51:kill (ROLE@STEP[/MOMENT]:KIND[=SECONDS][*TIMES])",
        kind=list[str],
        metavar="FAULT",
    ),
    Flag("min_num_csx", "let the appliance shrink the job to so many systems", kind=int),
    Flag("session", "session of the appliance (default: default)"),
    _switch("detach", "submit to the appliance, and return at once"),
    Flag("trace", "write a Perfetto trace of emulated and measured time to this file"),
    Flag("trace_limit", f"most activities of each clock (default: {DEFAULT_LIMIT:,})", kind=int),
    Flag(
        "wafer_trace",
        "write a picture and an animation of one kernel of a layer on the simulated wafer, and run "
        "nothing else: LAYER[:KERNEL][@ROWSxCOLUMNS], such as decoder.0 or decoder.0:softmax@4x6",
        metavar="LAYER",
    ),
    _switch("simulate", "predict the time of training on --num_csx systems, without training"),
    *SIMULATION_FLAGS,
    _switch(
        "json",
        "print the result as JSON: what is in run_summary.json, or in simulation.json with "
        "--simulate; text goes to standard error",
    ),
    Flag(
        "shrink",
        "scale the model down to so many parameters at most, such as 2M, with small batches, and "
        "random data where this host lacks those of the file; prints what differs",
        collect=parse_count,
    ),
    _switch("debug", "show the stack trace of errors"),
    _switch("traceback", "the same as --debug"),
)
