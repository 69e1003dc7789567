"""The script that makes `.venv` empties nothing that is not its own."""

import importlib.util
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "setup.py"


@pytest.fixture
def setting_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The script, for a project in a folder of its own."""
    spec = importlib.util.spec_from_file_location("setting_up", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "VENV", tmp_path / "project" / ".venv")
    monkeypatch.setattr(module, "STATE", tmp_path / "project" / ".venv" / module.STATE.name)
    (tmp_path / "project").mkdir()
    return module


@pytest.mark.parametrize("is_marked", [True, False], ids=["of another clone", "of nobody"])
def test_what_a_link_leads_to_stays(setting_up, tmp_path: Path, is_marked: bool) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("kept")
    if is_marked:
        (other / setting_up.STATE.name).write_text("{}")
    setting_up.VENV.symlink_to(other)
    with pytest.raises(setting_up.CannotSetUp, match="is a link, and what it leads to may be another project's"):
        setting_up.check_ours()
    assert (other / "kept").read_text() == "kept"


def test_a_folder_of_something_else_stays(setting_up) -> None:
    setting_up.VENV.mkdir()
    (setting_up.VENV / "kept").write_text("kept")
    with pytest.raises(setting_up.CannotSetUp, match="was made by something else; move it away or delete it"):
        setting_up.check_ours()


def test_what_it_began_itself_is_made_again(setting_up) -> None:
    setting_up.VENV.mkdir()
    setting_up.STATE.write_text("{}")
    setting_up.check_ours()
