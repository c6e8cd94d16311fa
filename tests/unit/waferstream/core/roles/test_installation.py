"""What roles derive from an installed program."""

from dataclasses import replace

from tests.support.programs.small_programs import program
from waferstream.core.program.program import TensorSpec
from waferstream.core.program.schedule import Rounds
from waferstream.core.program.stream_plan import plan_streams
from waferstream.core.roles.installation import InputFeed, Installation


def test_largest_payload_is_a_bucket_or_the_inputs() -> None:
    """Links take no larger payload than the program needs."""
    tiny = program()
    plan = plan_streams(tiny, 1)
    installation = Installation(tiny, (), plan, Rounds(1, 1), InputFeed(tuple, ()), None)
    assert installation.payload_bytes == max(b.num_bytes for b in plan.gradients)
    long = replace(tiny, inputs=(TensorSpec("tokens", (1, 10**6), "int64"),))
    assert replace(installation, program=long).payload_bytes == 8 * 10**6
