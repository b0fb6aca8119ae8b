# SPDX-License-Identifier: Apache-2.0
"""The distribution as a user gets it: really built, really installed, beside a package `kernels`.

The folder `kernels` is imported as `assay.kernels` and must never reach site-packages under its
plain name, which belongs to somebody else's package there. Everything happens in temporary
folders: the checkout is copied first, because builds write into their source tree.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

# The fixtures are built once in a worker, so all tests of this file belong to one.
pytestmark = pytest.mark.xdist_group("packaging")

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
ROOMS = ("oracles", "kernels", "properties", "fuzz")

# One file for each pattern of package data, so that the patterns are tried whatever there is now.
PLANTED_DATA = (
    "oracles/data/planted.bin",
    "oracles/curves/some_device/planted.json",
    "fuzz/templates/planted.html",
)


def _run(*command: str | Path, cwd: Path) -> str:
    """Standard output of a program that must succeed; both outputs in the message if it doesn't."""
    # A PYTHONPATH of the developer's would be seen by the programs and prove nothing about them.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _copy(to: Path) -> Path:
    """What a build needs of the checkout, and a file for each pattern of package data."""
    to.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    for room in ROOMS:
        shutil.copytree(ROOT / room, to / room, ignore=shutil.ignore_patterns("__pycache__"))
    for name in PLANTED_DATA:
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        (to / name).write_bytes(b"planted")
    return to


def _edit(source: Path, change: Callable[[str], str]) -> None:
    path = source / "pyproject.toml"
    old = path.read_text(encoding="utf-8")
    new = change(old)
    assert new != old, "the change changes nothing, so it would prove nothing"
    path.write_text(new, encoding="utf-8")


def _build(what: str, source: Path, out: Path) -> Path:
    """The wheel or sdist of a source tree, by the build backend that is installed here."""
    _run(
        *(sys.executable, "-m", "build", f"--{what}", "--no-isolation", "--outdir", out, source),
        cwd=source.parent,
    )
    (built,) = out.iterdir()
    return built


def _names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def _top_level(wheel: Path) -> set[str]:
    return {name.partition("/")[0] for name in _names(wheel)}


def _modules_of_checkout() -> set[str]:
    return {
        f"assay/{path.relative_to(ROOT).as_posix()}"
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
    }


@dataclass(frozen=True)
class Environment:
    """A virtual environment that has the packages of the one running the tests, but for ours."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> Environment:
        venv.create(folder, symlinks=True)
        here = Path(sysconfig.get_path("purelib"))
        (there,) = folder.glob("lib/python*/site-packages")
        for entry in here.iterdir():
            # An installation of ours there must not be the one that is found, and pip must not
            # reach through a link to replace a package that the developer has.
            if not re.search("assay|^kernels", entry.name):
                (there / entry.name).symlink_to(entry)
        return cls(folder)

    @property
    def bin(self) -> Path:
        return self.folder / "bin"

    def pip(self, *arguments: str | Path) -> None:
        quiet = ("--quiet", "--disable-pip-version-check")
        _run(self.bin / "python", "-I", "-m", "pip", *quiet, *arguments, cwd=self.folder)

    def install(self, *what: str | Path) -> None:
        offline = ("--no-index", "--no-deps", "--no-build-isolation", "--no-compile")
        self.pip("install", *offline, *what)

    def python(self, code: str) -> object:
        """What `code` leaves in `answer`, run away from the checkout."""
        program = f"import json\n{code}\nprint(json.dumps(answer))"
        return json.loads(_run(self.bin / "python", "-I", "-c", program, cwd=self.folder))

    def importable(self, *names: str) -> object:
        """Those of the packages that can be imported."""
        code = (
            "import contextlib, importlib\n"
            "answer = []\n"
            f"for name in {names}:\n"
            "    with contextlib.suppress(ModuleNotFoundError):\n"
            "        importlib.import_module(name)\n"
            "        answer.append(name)\n"
        )
        return self.python(code)

    def word_of_kernels(self) -> object:
        """What the other package says; None if something has overwritten it."""
        return self.python("import kernels\nanswer = getattr(kernels, 'WORD', None)")


Install = Callable[[str, Path], Environment]


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return _build("wheel", _copy(folder / "source"), folder / "dist")


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    return _build("sdist", _copy(folder / "source"), folder / "dist")


@pytest.fixture(scope="session")
def wheel_from_sdist(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel_from_sdist")
    shutil.unpack_archive(sdist, folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return _build("wheel", source, folder / "dist")


@pytest.fixture(scope="session")
def other_kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of another distribution, whose package is called plain `kernels`."""
    folder = tmp_path_factory.mktemp("other_kernels")
    package = folder / "source" / "kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('WORD = "untouched"\n', encoding="utf-8")
    (folder / "source" / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "kernels"\nversion = "1"\n'
        '[tool.setuptools]\npackages = ["kernels"]\n',
        encoding="utf-8",
    )
    return _build("wheel", folder / "source", folder / "dist")


@pytest.fixture(scope="session")
def install(wheel: Path, wheel_from_sdist: Path, other_kernels: Path) -> Install:
    """Makes an environment with the other `kernels` and, after it, one kind of ours."""

    def make(kind: str, folder: Path) -> Environment:
        environment = Environment.make(folder / "venv")
        environment.install(other_kernels)
        if kind == "editable":
            environment.install("--editable", _copy(folder / "source"))
        else:
            environment.install({"wheel": wheel, "sdist": wheel_from_sdist}[kind])
        return environment

    return make


@pytest.fixture(scope="session", params=["wheel", "sdist", "editable"])
def installed(
    request: pytest.FixtureRequest, install: Install, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """Each kind of installation, for tests that leave it as it is."""
    return install(request.param, tmp_path_factory.mktemp(request.param))


def test_rooms_can_be_imported(installed: Environment) -> None:
    code = (
        "import assay.fuzz, assay.kernels, assay.oracles.formats, assay.properties.plugin\n"
        "answer = assay.oracles.formats.format_named('float16').precision"
    )
    assert installed.python(code) == 11


def test_plugin_loads_nothing_heavy(installed: Environment) -> None:
    # pytest imports it in every project of the environment.
    code = (
        "import sys, assay.properties.plugin\n"
        "answer = sorted({'torch', 'triton', 'hypothesis', 'numpy'} & set(sys.modules))"
    )
    assert installed.python(code) == []


def test_pytest_finds_the_plugin(installed: Environment) -> None:
    shown = _run(installed.bin / "python", "-I", "-m", "pytest", "--help", cwd=installed.folder)
    assert "--require-gpu" in shown


def test_command_runs(installed: Environment) -> None:
    shown = _run(installed.bin / "assay", "--help", cwd=installed.folder)
    assert "audit" in shown


def test_nothing_has_a_plain_name(installed: Environment) -> None:
    assert installed.importable(*ROOMS) == ["kernels"]
    assert installed.word_of_kernels() == "untouched"


# Not "sdist": the wheel from it has the same files, as a test below shows.
@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_uninstalling_leaves_the_other_kernels(kind: str, install: Install, tmp_path: Path) -> None:
    environment = install(kind, tmp_path)
    assert environment.importable("assay.kernels", "kernels") == ["assay.kernels", "kernels"]
    environment.pip("uninstall", "--yes", "assay")
    assert environment.importable("assay.kernels", "kernels") == ["kernels"]
    assert environment.word_of_kernels() == "untouched"
    assert not (environment.bin / "assay").exists()


def test_wheel_has_one_package(wheel: Path) -> None:
    version = PROJECT["project"]["version"]
    assert _top_level(wheel) == {"assay", f"assay-{version}.dist-info"}
    # A namespace: an __init__ there would be a file that no room owns.
    assert "assay/__init__.py" not in _names(wheel)


def test_wheel_has_every_module(wheel: Path) -> None:
    assert {name for name in _names(wheel) if name.endswith(".py")} == _modules_of_checkout()


def test_wheel_has_the_data(wheel: Path) -> None:
    assert {f"assay/{name}" for name in PLANTED_DATA} <= _names(wheel)


def test_sdist_gives_the_same_wheel(wheel: Path, wheel_from_sdist: Path) -> None:
    assert _names(wheel_from_sdist) == _names(wheel)


# What the tests above are for happens here, and each of them would have noticed.


def test_flat_wheel_is_noticed(other_kernels: Path, tmp_path: Path) -> None:
    source = _copy(tmp_path / "source")
    _edit(source, lambda text: text.replace('"assay.', '"'))
    flat = _build("wheel", source, tmp_path / "dist")
    assert set(ROOMS) <= _top_level(flat)

    environment = Environment.make(tmp_path / "venv")
    environment.install(other_kernels)
    environment.install(flat)
    assert environment.importable(*ROOMS) == list(ROOMS)
    assert environment.word_of_kernels() is None
    environment.pip("uninstall", "--yes", "assay")
    assert environment.importable("kernels") == []


def test_missing_mapping_is_noticed(tmp_path: Path) -> None:
    source = _copy(tmp_path / "source")
    _edit(source, lambda text: text.replace("[tool.setuptools.package-dir]", "[tool.unread]"))
    with pytest.raises(AssertionError, match="package directory"):
        _build("wheel", source, tmp_path / "dist")


def test_forgotten_package_is_noticed(tmp_path: Path) -> None:
    source = _copy(tmp_path / "source")
    _edit(source, lambda text: text.replace('    "assay.kernels.faults",\n', ""))
    names = _names(_build("wheel", source, tmp_path / "dist"))
    missing = _modules_of_checkout() - names
    assert {name.rpartition("/")[0] for name in missing} == {"assay/kernels/faults"}
