"""The import hook for the vendor's modules."""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from torch.utils import _pytree as pytree

import cstorch
from appliance.user_code import imports_end_with, prepare_imports_with
from cstorch import sparse
from tests.support.errors import raises
from waferstream.core.errors import ApplianceNanError
from waferstream_compat import import_hook, older_names
from waferstream_compat.import_hook import VendorModuleError, VendorNameError
from waferstream_compat.utils.rates import RateTracker


@pytest.fixture(autouse=True)
def hook() -> Iterator[None]:
    """The hook, installed for one test."""
    prepare_imports_with("waferstream_compat.import_hook")
    yield
    imports_end_with("waferstream_compat.import_hook")


def test_front_end_names_are_those_of_cstorch() -> None:
    front = importlib.import_module("cerebras.pytorch")
    for name in cstorch.__all__:
        ours = getattr(cstorch, name)
        if not isinstance(ours, type(cstorch)) and name != "__version__":
            assert getattr(front, name) is ours
    assert front.optim.AdamW is cstorch.optim.AdamW
    assert front.__all__ == cstorch.__all__


def test_sub_modules_are_imported_by_their_full_names() -> None:
    data = importlib.import_module("cerebras.pytorch.utils.data")
    tensorboard = importlib.import_module("cerebras.pytorch.utils.tensorboard")
    loader = importlib.import_module("cerebras.framework.torch.utils.data.dataloader")
    assert data.DataLoader is loader.DataLoader is cstorch.utils.data.DataLoader
    assert tensorboard.SummaryWriter is cstorch.utils.tensorboard.SummaryWriter


def test_submodule_import_leaves_a_function_of_that_name() -> None:
    front = importlib.import_module("cerebras.pytorch")
    importlib.import_module("cerebras.pytorch.backend")
    assert front.backend is cstorch.backend


def test_every_module_of_the_table_is_imported() -> None:
    assert [importlib.import_module(name).__name__ for name in import_hook._OURS] == list(
        import_hook._OURS
    )


def test_modules_are_found_as_attributes() -> None:
    front = importlib.import_module("cerebras.pytorch")
    assert front.utils.tracker.RateTracker is RateTracker
    assert front.sparse.configure is sparse.configure
    assert importlib.import_module("cerebras.pytorch.sparse.configure") is not None
    assert front.sparse.configure is sparse.configure
    assert front.experimental.listener is not None


def test_version_is_that_of_the_interface() -> None:
    front = importlib.import_module("cerebras.pytorch")
    assert front.__version__ == "2.10.0"
    assert front._generating_docs is False


def test_client_errors_are_the_project_s() -> None:
    errors = importlib.import_module("cerebras.appliance.errors")
    config = importlib.import_module("cerebras.appliance.cluster_config")
    assert errors.ApplianceNanError is ApplianceNanError
    assert config.ClusterConfig is cstorch.distributed.ClusterConfig


def test_flags_are_set_through_the_vendor_s_name() -> None:
    front = importlib.import_module("cerebras.pytorch")
    try:
        front.backends.csx.debug.execute_crd_memory_gi = 32
        assert cstorch.backends.csx.debug.execute_crd_memory_gi == 32
    finally:
        cstorch.backends.reset()


@pytest.mark.parametrize(
    "package", ["cerebras_pytorch", "cerebras_pytorch.experimental", "cerebras.framework.torch"]
)
def test_packages_of_earlier_releases_are_the_front_end(package: str) -> None:
    front = importlib.import_module(package)
    assert front.compile is cstorch.compile
    assert front.step is front.compile_step is cstorch.trace
    assert issubclass(front.utils.CSConfig, cstorch.distributed.ClusterConfig)
    assert importlib.import_module(f"{package}.utils.nest").visit_torch_tensors is not None
    assert importlib.import_module(f"{package}.metrics").MeanMetric is cstorch.metrics.MeanMetric
    assert front.__version__ == "2.10.0"


@pytest.mark.parametrize("name", older_names.ALIASES)
def test_older_name_is_found_in_its_module(name: str) -> None:
    package, _, last = name.rpartition(".")
    assert getattr(importlib.import_module(package), last) is older_names.meaning(name)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("configure", "cluster_config="),
        ("DataLoader", "'cerebras.pytorch.utils.data.DataLoader'"),
        ("AdamW", "'cerebras.pytorch.optim.AdamW'"),
        ("traec", "'trace'"),
    ],
)
def test_missing_name_says_what_to_write_instead(name: str, remedy: str) -> None:
    front = importlib.import_module("cerebras.pytorch")
    with raises(VendorNameError, "vendor-name-missing") as caught:
        getattr(front, name)
    assert remedy in str(caught.value.remedy)


def test_names_below_a_dropped_one_have_its_remedy() -> None:
    expected = older_names.REPLACED["cerebras.pytorch.saver"]
    assert older_names.instead_of("cerebras_pytorch.saver.pt_h5_saver.PyTorchH5Saver") == expected
    assert older_names.instead_of("cerebras.pytorch.savor") is None


def test_missing_attribute_names_the_nearest_one() -> None:
    front = importlib.import_module("cerebras.pytorch")
    with raises(VendorNameError, "vendor-name-missing") as caught:
        front.utils.data.DataExecuter  # noqa: B018
    assert caught.value.where == "cerebras.pytorch.utils.data"
    assert caught.value.value == "DataExecuter"
    assert "DataExecutor" in str(caught.value.remedy)
    assert not hasattr(front, "no_such_name")


@pytest.mark.parametrize(
    "statement",
    [
        "from cerebras.pytorch import spars",
        "import cerebras.pytorch.spars",
        "from cerebras.pytorch.spars import Static",
        "from cerebras_pytorch.saver.pt_h5_saver import PyTorchH5Saver",
        "import cerebras.appliance.pb",
    ],
)
def test_missing_import_has_the_code_and_is_an_import_error(statement: str) -> None:
    with raises(VendorModuleError, "vendor-name-missing") as caught:
        exec(statement, {})
    assert isinstance(caught.value, ImportError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), again.code, again.value) == (
        VendorModuleError,
        caught.value.code,
        caught.value.value,
    )


def test_other_packages_of_the_namespace_come_from_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "cerebras" / "zoo_of_a_test"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import cerebras.pytorch as front\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import_hook.uninstall()
    import_hook.install()
    zoo = importlib.import_module("cerebras.zoo_of_a_test")
    del sys.modules["cerebras.zoo_of_a_test"]
    assert zoo.front.compile is cstorch.compile


def test_uninstall_leaves_no_module_behind() -> None:
    importlib.import_module("cerebras.pytorch.optim.lr_scheduler")
    import_hook.uninstall()
    clients = "cerebras.cloud"  # the SDK of the vendor's service, which other tests import
    left = [name for name in sys.modules if name.startswith("cerebras")]
    assert not [name for name in left if not name.startswith(clients)]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("cerebras.pytorch")


def test_structures_of_pytrees_can_be_replaced_as_in_torch_2_4() -> None:
    leaves, spec = pytree.tree_flatten((1, [2]))
    other = replace(spec, type=list, children_specs=spec.children())  # type: ignore[call-arg]
    assert pytree.tree_unflatten(leaves, other) == [1, [2]]
    import_hook.uninstall()
    with pytest.raises(TypeError):
        replace(spec, type=list)
