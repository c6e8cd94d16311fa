"""Servers agree on one norm, the one that a single server would have found."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from memoryx.norms import NormExchange
from memoryx.optim.clip import gradient_norms, total_norm
from wsc.core.messages import NormPartial, NormTotal

GENERATOR = torch.Generator().manual_seed(0)
GRADIENTS = [torch.randn(7, generator=GENERATOR) * 3.0**i for i in range(6)]
NORMS = gradient_norms(GRADIENTS)


@given(st.lists(st.integers(0, 3), min_size=6, max_size=6), st.randoms(use_true_random=False))
def test_the_total_does_not_know_who_owns_what(owners, order):
    """Bit for bit torch's norm over all gradients in master order, whoever sends first."""
    servers = sorted(set(owners))
    exchange = NormExchange(servers)
    partials = [
        NormPartial(
            1, server, tuple((i, NORMS[i]) for i, owner in enumerate(owners) if owner == server)
        )
        for server in servers
    ]
    order.shuffle(partials)
    *early, last = [list(exchange.take(partial)) for partial in partials]
    assert not any(early)
    assert [target for target, _ in last] == [f"wgt-{server}" for server in servers]
    parameters = [torch.nn.Parameter(gradient) for gradient in GRADIENTS]
    for parameter, gradient in zip(parameters, GRADIENTS, strict=True):
        parameter.grad = gradient.clone()
    expected = float(torch.nn.utils.clip_grad_norm_(parameters, 1.0))
    assert {total for _, total in last} == {NormTotal(1, expected)}


@pytest.mark.parametrize(("servers", "leader"), [([0, 1], "wgt-0"), ([2, 5], "wgt-2")])
def test_the_lowest_server_with_a_gradient_leads(servers, leader):
    """Server 0 may hold frozen weights only."""
    assert NormExchange(servers).leader == leader


def test_steps_do_not_mix():
    """A fast server may be a step ahead of a slow one."""
    exchange = NormExchange([0, 1])
    assert list(exchange.take(NormPartial(1, 0, ((0, 3.0),)))) == []
    assert list(exchange.take(NormPartial(2, 0, ((0, 5.0),)))) == []
    first = list(exchange.take(NormPartial(1, 1, ((1, 4.0),))))
    second = list(exchange.take(NormPartial(2, 1, ((1, 12.0),))))
    assert [message for _, message in first] == [NormTotal(1, 5.0)] * 2
    assert [message for _, message in second] == [NormTotal(2, 13.0)] * 2


def test_the_order_of_summands_is_that_of_the_masters():
    """Positions decide, not the order inside a message."""
    exchange = NormExchange([0])
    shuffled = tuple((i, NORMS[i]) for i in (3, 0, 5, 1, 4, 2))
    ((_, total),) = exchange.take(NormPartial(1, 0, shuffled))
    assert total.norm == total_norm(NORMS)
