"""What a user writes: backend, compile, trace, closures, optimizers, data.

backend = cstorch.backend("CSX", cluster_config=cstorch.ClusterConfig(num_csx=4))
with backend.device:
    model = Net()
compiled = cstorch.compile(model, backend)
optimizer = cstorch.optim.AdamW(model.parameters(), lr=1e-3)

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
    cstorch.utils.data.DataLoader(input_fn), num_steps=100, activation_steps=10
)
for step, batch in enumerate(executor):
    log_loss(training_step(batch), step)
"""

from cstorch import amp, optim, utils
from cstorch import flags as backends
from cstorch.backend import Backend, backend, current_backend
from cstorch.cluster import ClusterConfig
from cstorch.compile import compile
from cstorch.storage import load, save
from cstorch.trace import checkpoint_closure, step_closure, trace

__all__ = [
    "Backend",
    "ClusterConfig",
    "amp",
    "backend",
    "backends",
    "checkpoint_closure",
    "compile",
    "current_backend",
    "load",
    "optim",
    "save",
    "step_closure",
    "trace",
    "utils",
]
