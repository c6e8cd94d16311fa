"""cluster.yaml: every key is optional."""

from pathlib import Path

import pytest

from appliance.spec import ClusterSpec, load_cluster
from wsc.core.errors import ConfigError


@pytest.mark.parametrize("text", ["machine:\n", "machine:\nruntime:\n", "runtime: {kind: ray}\n"])
def test_a_section_whose_lines_are_commented_out_is_as_published(tmp_path: Path, text: str) -> None:
    """Nothing said is not something wrong."""
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    assert load_cluster(path) == ClusterSpec()


def test_a_section_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    """With its key and file."""
    path = tmp_path / "cluster.yaml"
    path.write_text("machine: CS-2\n")
    with pytest.raises(ConfigError, match="'machine' is not allowed") as caught:
        load_cluster(path)
    assert caught.value.where == str(path)
