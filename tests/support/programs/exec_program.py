"""A program written for the real machine's front end, with its loader, data and cluster."""

from __future__ import annotations

from pathlib import Path

import torch
import yaml

STEPS = 6
LOADER = """
import numpy as np
import torch

import cerebras.pytorch.distributed as dist


class Rows(torch.utils.data.Dataset):
    def __init__(self, path):
        self.rows = np.memmap(path, dtype=np.uint16, mode="r").reshape(-1, 9)

    def __getitem__(self, index):
        row = self.rows[index].astype(np.int64)
        return row[:-1], row[1:]

    def __len__(self):
        return len(self.rows)


def own_share(batches):
    for index, batch in enumerate(batches):
        if index % dist.num_streamers() == dist.get_streaming_rank():
            yield batch


def make_loader(path, batch_size):
    rows = Rows(path)
    order = torch.utils.data.RandomSampler(rows, generator=torch.Generator().manual_seed(3))
    batches = torch.utils.data.BatchSampler(
        order, dist.get_streaming_batch_size(batch_size), drop_last=True
    )
    return torch.utils.data.DataLoader(rows, batch_sampler=list(own_share(batches)))
"""


PROGRAM = """
import argparse
import json
from pathlib import Path

import torch

import cerebras.pytorch as cstorch
from cerebras.appliance.cluster_config import ClusterConfig
from cerebras.pytorch.utils.tensorboard import SummaryWriter
from loader import make_loader


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(16, 8)
        self.layer = torch.nn.Linear(8, 8)
        self.head = torch.nn.Linear(8, 16, bias=False)

    def forward(self, tokens, labels):
        hidden = self.table(tokens)
        logits = self.head(hidden + torch.nn.functional.gelu(self.layer(hidden)))
        return torch.nn.functional.cross_entropy(logits.view(-1, 16), labels.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--fail_at", type=int)
    parser.add_argument("--wait_at", type=int)
    options = parser.parse_args()

    backend = cstorch.backend("CSX", cluster_config=ClusterConfig(num_csx=1, mount_dirs=["/n"]))
    if not backend.is_cpu:
        cstorch.amp.set_half_dtype("bfloat16")
    torch.manual_seed(0)
    with backend.device:
        model = Net()
    compiled = cstorch.compile(model, backend)
    optimizer = cstorch.optim.AdamW(model.parameters(), lr=0.1, correct_bias=True)
    scheduler = cstorch.optim.lr_scheduler.SequentialLR(
        optimizer,
        schedulers=[
            cstorch.optim.lr_scheduler.LinearLR(
                optimizer, initial_learning_rate=0.0, end_learning_rate=0.05, total_iters=2
            ),
            cstorch.optim.lr_scheduler.CosineDecayLR(
                optimizer, initial_learning_rate=0.05, end_learning_rate=0.005, total_iters=8
            ),
        ],
        milestones=[2],
    )
    cstorch.backends.csx.debug.execute_crd_memory_gi = 32

    @cstorch.trace
    def training_step(batch):
        tokens, labels = batch
        loss = compiled(tokens, labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(model.parameters()), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        return loss

    losses = []
    writer = SummaryWriter(log_dir=options.folder / "events")

    @cstorch.step_closure
    def log_loss(loss, step):
        losses.append(loss.item())
        writer.add_scalar("loss", loss.item(), step)
        print("step", step, loss.item(), flush=True)
        if step == options.fail_at:
            raise ValueError("broken by the program")
        while step == options.wait_at:
            pass

    @cstorch.checkpoint_closure
    def save(step):
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        cstorch.save({**state, "global_step": step}, options.folder / f"checkpoint_{step}.mdl")

    loader = cstorch.utils.data.DataLoader(make_loader, str(options.folder / "tokens.bin"), 4)
    executor = cstorch.utils.data.DataExecutor(
        loader, num_steps=options.steps, checkpoint_steps=3
    )
    for step, batch in enumerate(executor, start=1):
        loss = training_step(batch)
        log_loss(loss, step)
        save(step)
    writer.close()
    (options.folder / "losses.json").write_text(json.dumps(losses))
    print("systems", backend.cluster_config.num_csx)


if __name__ == "__main__":
    main()
"""


def write_program(folder: Path) -> Path:
    """Write the program, its loader beside it, tokens, and a cluster in one process."""
    code = folder / "code"
    code.mkdir()
    (code / "train_it.py").write_text(PROGRAM)
    (code / "loader.py").write_text(LOADER)
    tokens = torch.arange(64 * 9, dtype=torch.int64).mul(7).remainder(16).to(torch.uint16)
    (folder / "tokens.bin").write_bytes(tokens.numpy().tobytes())
    write_cluster(folder, "local")
    return folder


def write_cluster(folder: Path, kind: str) -> None:
    (folder / "cluster.yaml").write_text(yaml.safe_dump({"runtime": {"kind": kind}}))
