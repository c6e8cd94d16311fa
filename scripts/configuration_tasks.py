"""The tasks by which the page of keys is arranged, each with an example."""

from __future__ import annotations

from dataclasses import dataclass

from waferstream.config.schema.files import FileKind


@dataclass(frozen=True)
class Task:
    """A chapter of the page: sections of a file that are written for one purpose."""

    file: FileKind
    title: str
    places: tuple[str, ...]
    """Paths that the sections of the task are at, or below."""
    example: str
    """A part of the file."""

    def distance(self, place: str) -> int:
        """Return the length of the longest of the task's places that a path is in; -1 if none."""
        within = (
            each for each in self.places if f"{place}.".startswith(f"{each}." if each else "")
        )
        return max(map(len, within), default=-1)


def task_of(file: FileKind, place: str) -> Task:
    """Return the task of a section of a file."""
    own = [task for task in TASKS if task.file == file]
    return max(own, key=lambda task: task.distance(place))


TASKS = (
    Task(
        "params",
        "Say what to run, and how long",
        ("",),
        """\
trainer:
  init:
    model_dir: model_dir
    seed: 1
    loop: {max_steps: 10000, eval_frequency: 1000}
""",
    ),
    Task(
        "params",
        "Ask for systems",
        ("trainer.init.backend", "trainer.init.autorestart"),
        """\
trainer:
  init:
    backend:
      backend_type: CSX
      cluster_config: {num_csx: 4, num_workers_per_csx: 1}
    autorestart: {max_num_restarts: 3}
""",
    ),
    Task(
        "params",
        "Describe the model",
        ("trainer.init.model",),
        """\
trainer:
  init:
    model:
      name: gpt2
      vocab_size: 256
      hidden_size: 256
      num_hidden_layers: 4
      num_heads: 4
      filter_size: 1024
      max_position_embeddings: 128
""",
    ),
    Task(
        "params",
        "Feed data",
        (
            "trainer.fit.train_dataloader",
            "trainer.fit.val_dataloader",
            "trainer.validate.val_dataloader",
            "trainer.validate_all.val_dataloaders",
        ),
        """\
trainer:
  fit:
    train_dataloader:
      data_processor: TextDataProcessor
      path: texts
      batch_size: 16
      max_sequence_length: 128
""",
    ),
    Task(
        "params",
        "Choose optimizer and schedules",
        ("trainer.init.optimizer", "trainer.init.schedulers"),
        """\
trainer:
  init:
    optimizer:
      AdamW: {betas: [0.9, 0.95], weight_decay: 0.1}
    schedulers:
      - SequentialLR:
          schedulers:
            - LinearLR: {initial_learning_rate: 0.0, end_learning_rate: 1.0e-3, total_iters: 100}
            - CosineDecayLR:
                {initial_learning_rate: 1.0e-3, end_learning_rate: 1.0e-4, total_iters: 9900}
""",
    ),
    Task(
        "params",
        "Set precision and clipping",
        ("trainer.init.precision",),
        """\
trainer:
  init:
    precision:
      fp16_type: float16
      loss_scaling_factor: dynamic
      max_gradient_norm: 1.0
""",
    ),
    Task(
        "params",
        "Make weights sparse",
        ("trainer.init.sparsity",),
        """\
trainer:
  init:
    sparsity:
      algorithm: gmp
      sparsity: {type: linear, init: 0.1, slope: 1.0e-4}
      update: {freq: 100, stop: 5000}
""",
    ),
    Task(
        "params",
        "Keep checkpoints",
        ("trainer.init.checkpoint",),
        """\
trainer:
  init:
    checkpoint: {steps: 1000, save_initial_checkpoint: true}
""",
    ),
    Task(
        "params",
        "Watch and log a run",
        ("trainer.init.logging", "trainer.init.callbacks", "trainer.init.loggers"),
        """\
trainer:
  init:
    logging: {log_steps: 10}
    callbacks:
      - ComputeNorm: {}
      - KeepNCheckpoints: {n: 3}
      - GlobalFlags: {csx.performance.micro_batch_size: fill_wafer}
    loggers:
      - TensorBoardLogger: {}
""",
    ),
    Task(
        "cluster",
        "Describe the machine",
        ("", "machine"),
        """\
machine:
  system: {name: CS-2, clock_hz: 1200000000}
  swarmx: {fan_out: 2}
""",
    ),
    Task(
        "cluster",
        "Say where it runs",
        ("runtime",),
        """\
runtime:
  kind: ray
  address: local
  heartbeat_timeout_s: 5.0
  faults: {stated: ["csx-1@51:kill"]}
""",
    ),
)
