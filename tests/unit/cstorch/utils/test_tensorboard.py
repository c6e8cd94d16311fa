"""Event files and files of tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from cstorch.utils.tensorboard import SummaryWriter


def test_writer_names_its_event_file(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_scalar("loss", 1.0, 1)
        assert Path(writer._get_file_writer().event_writer._file_name).is_file()


def test_tensors_are_written_by_tag_and_step(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        writer.add_tensor("a/b", torch.tensor([1.5, 2.0], dtype=torch.bfloat16), 3)
    assert np.load(tmp_path / "cs_events" / "a" / "b" / "3.npy").tolist() == [1.5, 2.0]
