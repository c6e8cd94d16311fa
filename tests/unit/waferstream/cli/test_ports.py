"""Flags that name a port."""

import pytest

from waferstream.cli.main import main


@pytest.mark.parametrize(
    "words",
    [
        "management start --port",
        "management start --http_port",
        "serve model_dir --port",
        "cluster serve --port",
        "explore params.yaml --port",
    ],
)
@pytest.mark.parametrize("value", [-1, 65_536])
def test_number_that_is_no_port_is_refused(
    words: str, value: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is read or served: gRPC would serve at the low 16 bits of it."""
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), f"{value}"])
    assert ended.value.code == 2
    complaint = capsys.readouterr().err
    assert f"'{words.rsplit(maxsplit=1)[-1]}'" in complaint
    assert f"got '{value}'" in complaint
