"""The static schedule: what comes is dropped again, in an order in which it can be done."""

import pytest

from tests.support.local_machine import Regression, compile_model, random_batches
from tests.support.small_programs import program
from wsc.core.actions import (
    DropActivation,
    DropWeight,
    ReduceGradient,
    RunKernel,
    StashActivation,
    StreamWeight,
    UpdateParameter,
    node_actions,
    server_actions,
)
from wsc.core.program import plan_streams


@pytest.fixture(scope="module")
def captured():
    """A program as the compiler makes it."""
    return compile_model(Regression(depth=3), random_batches(1, 4)[0], 2).program


@pytest.fixture(params=["by hand", "compiled"])
def tiny(request, captured):
    return program() if request.param == "by hand" else captured


@pytest.fixture(params=[1, 2, 3])
def num_servers(request):
    return request.param


def test_the_schedule_can_be_walked(tiny, num_servers):
    """Every weight is there when its kernel runs, every value is stashed before it is read."""
    plan = plan_streams(tiny, num_servers)
    weights, values = set(), {spec.name for spec in tiny.inputs}
    ran = []
    for action in node_actions(tiny, plan):
        match action:
            case StreamWeight(bucket):
                weights |= set(plan.weights[bucket].names)
            case RunKernel(index):
                segment = tiny.segments[index]
                assert set(segment.weights) == weights
                assert set(segment.inputs) <= values
                ran.append(index)
            case DropWeight(bucket):
                weights -= set(plan.weights[bucket].names)
            case StashActivation(index):
                assert not weights, "a weight is still there when the segment is over"
                values |= set(tiny.segments[index].outputs)
            case DropActivation(index, names):
                assert index == ran[-1]
                values -= set(names)
    assert ran == list(range(len(tiny.segments)))
    assert not weights
    assert not values, "something is left on the node"


def test_every_weight_is_dropped_right_after_its_kernel(tiny, num_servers):
    """Stream, run, drop: between two kernels no weight stays."""
    plan = plan_streams(tiny, num_servers)
    actions = node_actions(tiny, plan)
    streamed = [action.bucket for action in actions if isinstance(action, StreamWeight)]
    dropped = [action.bucket for action in actions if isinstance(action, DropWeight)]
    assert streamed == dropped == [bucket.index for bucket in plan.weights]


def test_every_gradient_leaves_once_and_from_its_segment(tiny, num_servers):
    """In the order of the plan, after the kernel that makes it."""
    plan = plan_streams(tiny, num_servers)
    ran, reduced = None, []
    for action in node_actions(tiny, plan):
        match action:
            case RunKernel(index):
                ran = index
            case ReduceGradient(bucket):
                assert plan.gradients[bucket].segment == ran
                reduced.append(bucket)
    assert reduced == [bucket.index for bucket in plan.gradients]


def test_servers_do_together_what_a_node_needs(tiny, num_servers):
    """Every bucket is sent by one server and collected by one, and updated once a step."""
    plan = plan_streams(tiny, num_servers)
    done = [
        action
        for server in range(num_servers)
        for action in server_actions(plan, server, is_last_round=True)
    ]
    for kind, buckets in (
        (StreamWeight, plan.weights),
        (ReduceGradient, plan.gradients),
        (UpdateParameter, plan.gradients),
    ):
        assert sorted(a.bucket for a in done if isinstance(a, kind)) == list(range(len(buckets)))
    early = server_actions(plan, 0, is_last_round=False)
    assert not any(isinstance(action, UpdateParameter) for action in early)
