"""Emulated costs of the ops of a program."""

from timing.hardware.fabric import WSE2
from timing.kernels import Grid
from timing.kernels.op_costs import op_cycles
from wsc.core.program.program import Program


def check_costs(program: Program) -> None:
    """Check that every op of a training step costs cycles, except views."""
    grid = Grid.whole(WSE2)
    assert {segment.phase for segment in program.segments} == {"forward", "backward"}
    for segment in program.segments:
        assert segment.work or not segment.outputs
        for work in segment.work:
            cycles = op_cycles(grid, work, program.stream_dtype).total_cycles
            assert (cycles == 0) if work.kind == "view" else (cycles > 0), work
