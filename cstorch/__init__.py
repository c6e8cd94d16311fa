"""Front end of a user's program: backend, compile, trace, closures, optimizers, data.

A complete program, which a test runs::

    import torch

    import cstorch


    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, y):
            return (self.layer(x) - y).square().mean()


    def input_fn():
        x = torch.randn(64, 4)
        return [{"x": x, "y": x.sum(dim=1, keepdim=True)}]


    # Runs in this process; without the runtime section every role is a Ray actor.
    local = {"runtime": {"kind": "local"}}
    config = cstorch.ClusterConfig(num_csx=4, cluster=local)
    backend = cstorch.backend("CSX", cluster_config=config)
    cstorch.amp.enable_mixed_precision(False)
    with backend.device:
        model = Net()
    compiled = cstorch.compile(model, backend)
    optimizer = cstorch.optim.AdamW(model.parameters(), lr=0.1)


    @cstorch.trace
    def training_step(batch):
        loss = compiled(**batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss


    @cstorch.step_closure
    def log_loss(loss, step):
        print(step, loss.item())


    executor = cstorch.utils.data.DataExecutor(
        cstorch.utils.data.DataLoader(input_fn), num_steps=20, activation_steps=10
    )
    for step, batch in enumerate(executor, start=1):
        log_loss(training_step(batch), step)
    backend.shutdown()
"""

from cstorch import amp, distributed, metrics, optim, sparse, utils
from cstorch import flags as backends
from cstorch.amp.precision_level import current_pol, pol
from cstorch.backend import Backend
from cstorch.closures import checkpoint_closure, step_closure
from cstorch.cluster.config import ClusterConfig
from cstorch.compile import compile
from cstorch.current import (
    backend,
    current_backend,
    current_executor,
    current_torch_device,
    use_cs,
)
from cstorch.handover import Handover, hand_over
from cstorch.simulation import simulate
from cstorch.storage import load, save
from cstorch.tensors import (
    add_debug_name,
    device,
    from_numpy,
    full,
    full_like,
    get_debug_name,
    make_constant,
    name_scope,
    ones,
    ones_like,
    set_debug_scope,
    tensor,
    to_numpy,
    zeros,
    zeros_like,
)
from cstorch.trace import step, trace
from cstorch.tracing.brief_errors import show_briefly
from cstorch.trainer import CSConfig, Trainer
from waferstream.version import VERSION

__version__ = VERSION

show_briefly()

__all__ = [
    "Backend",
    "CSConfig",
    "ClusterConfig",
    "Handover",
    "Trainer",
    "__version__",
    "add_debug_name",
    "amp",
    "backend",
    "backends",
    "checkpoint_closure",
    "compile",
    "current_backend",
    "current_executor",
    "current_pol",
    "current_torch_device",
    "device",
    "distributed",
    "from_numpy",
    "full",
    "full_like",
    "get_debug_name",
    "hand_over",
    "load",
    "make_constant",
    "metrics",
    "name_scope",
    "ones",
    "ones_like",
    "optim",
    "pol",
    "save",
    "set_debug_scope",
    "simulate",
    "sparse",
    "step",
    "step_closure",
    "tensor",
    "to_numpy",
    "trace",
    "use_cs",
    "utils",
    "zeros",
    "zeros_like",
]
