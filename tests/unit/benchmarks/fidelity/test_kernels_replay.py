"""Replays of kernel rows: the right form, and reasons where there is none."""

from typing import Any

import pytest

from benchmarks.fidelity.fit_kernels import fit_gemm, fit_gemv
from benchmarks.fidelity.kernels import FAMILIES
from benchmarks.fidelity.replay import CannotReplay
from benchmarks.fidelity.replays import Replays
from benchmarks.fidelity.rows import Row
from wsc.core.errors import ConfigError
from wsc.timing.hardware.programs import PROGRAMS

COLUMNS = "system workload algorithm grid_x grid_y num_pes vector_len M K N params dtype clock_ghz"


def _row(workload: str, unit: str = "cycles", *, value: float = 1.0, **cells: Any) -> Row:
    fields = dict.fromkeys(COLUMNS.split(), "")
    fields |= {"system": "WSE-2 (Cerebras SDK simulator)", "dtype": "fp32", "workload": workload}
    fields |= {name: str(cell) for name, cell in cells.items() if name in fields}
    evidence = cells.get("evidence", "simulator")
    return Row("kernels", "rows.csv", 2, "K1", "calibration", value, unit, evidence, fields)


def _predict(row: Row) -> float:
    return next(family for family in FAMILIES if family.knows(row)).predict(row)


def _reduce(algorithm: str, length: int, **cells: Any) -> float:
    cells = {"num_pes": 512, "grid_x": 512, "grid_y": 1} | cells
    return _predict(_row("1D reduce", algorithm=algorithm, vector_len=length, **cells))


def test_each_reduce_program_has_its_form() -> None:
    """K0001, K0016, K0048 and K0052, which runs the two-phase program as a chain."""
    assert _reduce("chain (reduce_2colors_static)", 1) == 3128
    two_phase = "two-phase, step=32 (reduce_2colors_dynamic)"
    assert _reduce(two_phase, 1, params="step=32") == 819
    variable = "two-phase, variable step (reduce_2colors_2phase)"
    assert _reduce(variable, 4096, params="step=32") == 8973
    as_chain = _reduce("two-phase with step=P == chain", 4096, params="step=512")
    assert as_chain == _reduce("chain (reduce_2colors_static)", 4096)
    assert _reduce("tree (reduce_2colors_low_depth)", 1) == pytest.approx(742, rel=0.03)


def test_published_forms_of_other_collectives_are_known() -> None:
    """Star, ring, auto-generated, all-reduce, broadcast, and two dimensions."""
    cells = {"num_pes": 64, "grid_x": 64, "grid_y": 1}
    chain = _reduce("chain", 256, **cells)
    assert _reduce("star", 256, **cells) > chain
    assert _reduce("Auto-Gen", 256, **cells) <= chain
    both = _predict(_row("1D allreduce", algorithm="chain", vector_len=256, **cells))
    assert both == chain + 256 + 64 + 4
    grid = {"algorithm": "", "grid_x": 8, "grid_y": 8, "vector_len": 256}
    assert _predict(_row("2D broadcast", **grid)) == 61 + 256 + 14 + 5
    snake = _predict(_row("2D reduce", **(grid | {"algorithm": "snake"})))
    assert snake == chain


@pytest.mark.parametrize(
    ("workload", "algorithm", "cells"),
    [
        ("1D reduce", "chain", {"num_pes": 995}),
        ("1D allreduce", "ring", {"num_pes": 995}),
        ("1D reduce", "tree (reduce_2colors_low_depth)", {"num_pes": 1024}),
        ("1D reduce", "two-phase", {"num_pes": 1024, "params": "step=32"}),
        ("2D broadcast", "", {"grid_x": 751, "grid_y": 994}),
        ("2D reduce", "snake", {"grid_x": 995, "grid_y": 2}),
        ("2D reduce", "chain", {"grid_x": 2, "grid_y": 995}),
    ],
)
def test_a_collective_on_more_pes_than_the_wafer_has_is_refused(
    workload: str, algorithm: str, cells: dict[str, Any]
) -> None:
    """The error names file, row, fields and rule, and the report lists it as the reason."""
    row = _row(workload, algorithm=algorithm, vector_len=8, **cells)
    fields = "fields grid_x and grid_y" if "2D" in workload else "field num_pes"
    with pytest.raises(ConfigError) as refusal:
        _predict(row)
    assert refusal.value.where == f"rows.csv, line 2, row K1, {fields}"
    (listed,) = Replays.of([row], FAMILIES).listed
    assert "at most the usable grid of 750 x 994 PEs" in listed.reason


def test_a_collective_on_the_whole_wafer_is_predicted() -> None:
    """A line along either side, the grid either way round, and the larger grid of a WSE-3."""
    chain: dict[str, Any] = {"algorithm": "chain", "vector_len": 8}
    assert _predict(_row("1D reduce", **chain, num_pes=994)) > 994
    whole = _predict(_row("2D reduce", **chain, grid_x=750, grid_y=994))
    assert whole == _predict(_row("2D reduce", **chain, grid_x=994, grid_y=750))
    wse3 = "WSE-3 (Cerebras SDK simulator)"
    assert _predict(_row("1D reduce", **chain, system=wse3, num_pes=1176)) > 1176


def test_silicon_and_simulator_of_a_wse_3_differ() -> None:
    """K0092 and K0095: a turn takes 33 cycles in the simulator, 20 on silicon."""
    turn = {"workload": "NoC point-to-point", "algorithm": "per turn", "unit": "cycles/turn"}
    assert _predict(_row(**turn, system="WSE-3 (Cerebras SDK simulator)")) == 33
    assert _predict(_row(**turn, system="CS-3 (WSE-3)", evidence="silicon")) == 20


def test_single_pe_rows_have_their_forms() -> None:
    """K0083, K0104, K0114 and K0242."""
    silicon = {"system": "CS-3 (WSE-3)", "evidence": "silicon", "dtype": "fp16"}
    vector = _row("single-PE DSD vector op", "elements/cycle", algorithm="fma", **silicon)
    assert _predict(vector) == 2.92
    simulator = {"system": "WSE-3 (Cerebras SDK simulator)", "dtype": "fp16"}
    axpy = _row("single-PE microbenchmark", "elements/cycle", algorithm="axpy fmach", **simulator)
    assert _predict(axpy) == 4
    loop = _row("4096 fp16 FMA loop forms", algorithm="L0 single DSD op", **simulator)
    assert _predict(loop) == 1040
    apart = _row(
        "fmacs micro-test, 5124 elements", vector_len=5124, params="0.5 cycle/element variant"
    )
    assert _predict(apart) == pytest.approx(2597, rel=0.01)


def test_a_matrix_vector_product_on_the_wafer_is_near_what_was_measured() -> None:
    """K0552: 1.2 us at 1.1 GHz for 16384 x 16384 in fp16; nothing was fitted to it."""
    gemv = {"workload": "GEMV", "unit": "ms", "algorithm": "MeshGEMV", "dtype": "fp16"}
    predicted = _predict(_row(**gemv, K=16384, N=16384, clock_ghz=1.1))
    assert predicted == pytest.approx(0.0012, rel=0.06)


def test_the_stencil_is_in_seconds_of_many_steps() -> None:
    """K0060 and K0074: the unit says how many."""
    stencil = {"workload": "25-point FD stencil, 3D acoustic wave", "system": "CS-2 (WSE-2)"}
    some = _predict(_row(**stencil, unit="s per 1000 steps", params="nz=1000; 1000 time steps"))
    many = _predict(_row(**stencil, unit="s per 100000 steps", params="nz=1000; block b=334"))
    assert some == pytest.approx(0.075, rel=0.07)
    assert many == pytest.approx(100 * some)


@pytest.mark.parametrize(
    ("workload", "unit", "cells"),
    [
        ("1D reduce", "x speedup", {"algorithm": "chain"}),
        ("1D reduce", "cycles", {"algorithm": "chain", "vector_len": 8}),
        ("1D reduce", "cycles", {"algorithm": "sorcery", "vector_len": 8, "num_pes": 8}),
        ("GEMV", "x speedup", {}),
        ("MeshGEMV whole program P=4", "cycles", {"dtype": "fp16"}),
        ("GEMM", "cycles", {"algorithm": "Cannon"}),
        ("SpMM COO", "cycles", {}),
        ("single-PE microbenchmark", "cycles/MAC", {"algorithm": "GEMV single tile"}),
        ("4096 fp16 FMA loop forms", "cycles", {"algorithm": "L2"}),
        ("NoC point-to-point", "cycles/hop", {"system": "WSE-9"}),
        ("NoC point-to-point", "cycles/furlong", {}),
        ("25-point FD stencil", "s per 1000 steps", {}),
    ],
)
def test_what_cannot_be_predicted_says_why(
    workload: str, unit: str, cells: dict[str, object]
) -> None:
    """A ratio, missing sizes, an unknown program or system: a reason, never a guess."""
    with pytest.raises(CannotReplay) as reason:
        _predict(_row(workload, unit, **cells))
    assert str(reason.value)


def test_the_constants_of_programs_follow_from_calibration_rows() -> None:
    """K0123, K0127 and K0131; K0138 and K0141."""
    maps = [
        _row("single-tile matvec y=Ax", "cycles per matvec", value=value, M=size, K=size)
        for size, value in ((20, 458.8), (60, 3701.8), (100, 10144.8))
    ]
    fitted = fit_gemv(maps)
    assert fitted["ProgramSpec.map_column_cycles"] == pytest.approx(
        PROGRAMS.map_column_cycles, 1e-3
    )
    assert fitted["ProgramSpec.map_start_cycles"] == pytest.approx(PROGRAMS.map_start_cycles, 1e-3)
    gemm = {"workload": "GEMM", "algorithm": "GEMM (DSD kernels)", "M": 64}
    products = [
        _row(**gemm, value=477507, grid_x=16, grid_y=12, K=768, N=768),
        _row(**gemm, value=150996, grid_x=128, grid_y=8, K=1024, N=1024),
    ]
    fitted = fit_gemm(products)
    assert fitted["ProgramSpec.strided_fma_cycles"] == pytest.approx(
        PROGRAMS.strided_fma_cycles, 1e-3
    )


def test_a_fit_without_enough_rows_is_refused() -> None:
    """One size makes no line, and no product no rate."""
    one = _row("single-tile matvec y=Ax", "cycles per matvec", value=458.8, M=20, K=20)
    with pytest.raises(ConfigError, match="two points"):
        fit_gemv([one, one])
    with pytest.raises(ConfigError, match="no product"):
        fit_gemm([])
