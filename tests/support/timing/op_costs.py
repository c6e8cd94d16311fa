"""Emulated costs of the ops of a program."""

from waferstream.core.program.program import Program
from waferstream.machine.hardware.fabric import WSE2
from waferstream.machine.kernels import Grid
from waferstream.machine.kernels.op_costs import op_cycles


def check_costs(program: Program) -> None:
    """Check that every op of a training step costs cycles, except views."""
    grid = Grid.whole(WSE2)
    assert {segment.phase for segment in program.segments} == {"forward", "backward"}
    for segment in program.segments:
        assert segment.work or not segment.outputs
        for work in segment.work:
            cycles = op_cycles(grid, work, program.stream_dtype).total_cycles
            assert (cycles == 0) if work.kind == "view" else (cycles > 0), work
