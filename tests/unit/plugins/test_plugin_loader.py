"""Loading plugins: by entry point, and what is said when one can't be used."""

from importlib.metadata import EntryPoint

import pytest

from amqsidecar.errors import ConfigError
from amqsidecar.plugin_loader import BUILT_IN, GROUP, load_plugins

OURS = [EntryPoint(name, f"amqsidecar_{name}:plugin", GROUP) for name in BUILT_IN]


def _problems(*found: EntryPoint) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_plugins(found)
    return [str(problem) for problem in caught.value.problems]


def test_built_in_plugins_are_installed() -> None:
    assert set(load_plugins()) >= set(BUILT_IN)


def test_missing_built_in_is_named() -> None:
    [problem] = _problems(*OURS[1:])
    assert problem.startswith("plugin redelivery: is missing")


def test_plugin_that_cannot_be_loaded_is_named_with_its_reason() -> None:
    """The name, the module, and what Python said."""
    [problem] = _problems(*OURS, EntryPoint("mine", "no_such_module:plugin", GROUP))
    assert problem.startswith("plugin mine (no_such_module:plugin): can't be loaded")
    assert "ModuleNotFoundError" in problem


def test_what_is_no_plugin_is_refused() -> None:
    """An object without the two functions, or with another name, is not used."""
    [missing] = _problems(*OURS, EntryPoint("mine", "os.path:sep", GROUP))
    assert "lacks parse_options and compile" in missing
    [renamed] = _problems(*OURS, EntryPoint("mine", "amqsidecar_discarding:plugin", GROUP))
    assert "calls itself 'discarding'" in renamed


def test_name_may_be_taken_once() -> None:
    [problem] = _problems(*OURS, OURS[0])
    assert "another installed plugin has this name" in problem
