"""CPU kernels whatever the disk and Numba are like: each case in a fresh process, most of them with
kernels so small that compiling takes no time. docs/install.md has the table."""

from __future__ import annotations

import os
import pickle
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import ksubset

# Kernels of one name and signature: what they close over is all that tells them apart. Of the
# package only what compiles is imported: torch would take most of the time.
SMALL = """
import os, sys, types
for name in ("ksubset", "ksubset.kernels", "ksubset.kernels.cpu"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [os.path.join(os.environ["PYTHONPATH"], *name.split("."))]
from ksubset.kernels.cpu.compile import kernel

def adding(amount):
    @kernel
    def add(x):
        return x + amount
    return add

for amount in map(int, sys.argv[1:]):
    assert adding(amount)(1) == 1 + amount
"""
# Samples, gradients of first and second order, and what starts from the tilt, by methods' names.
LIBRARY = """
import sys
import torch
import ksubset

x = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0]], requires_grad=True)
for method in sys.argv[1:]:
    z = ksubset.simple(x, 2, (7,), method=method)
    assert (z.sum(-1) == 2).all()
    covariance = ksubset.covariance_matrix(x, 2, method=method)
    (gradient,) = torch.autograd.grad(z[..., 0].sum(), x, create_graph=True)
    assert torch.allclose(gradient, 7 * covariance[:, 0], atol=1e-5)
    gradient[0, 1].backward()
    entropy = ksubset.entropy(x, 2, method=method)
    product = ksubset.covariance_product(x, 2, x, method=method)
    assert torch.allclose(torch.autograd.grad(entropy.sum(), x)[0], -product, atol=1e-5)
    marginals = ksubset.marginals(x, 2, method=method)
    again = ksubset.KSubset.from_marginals(marginals.detach(), method=method)
    assert torch.allclose(ksubset.marginals(again.logits, 2, method=method), marginals, atol=1e-5)
    print(*(f"{value:.4f}" for value in marginals[0].tolist()))
print("numba" in sys.modules)
"""
AHEAD = """
import torch
from ksubset.kernels.cpu import _KERNELS
from ksubset.kernels.cpu.ahead import compile_for
print(*compile_for(torch.float32))
assert all(kernel.overloads for kernel in _KERNELS[torch.float32])
"""
COMPILING, NOT_KEPT = "ksubset: compiling add", "compiled kernels cannot be kept"


@pytest.fixture
def place() -> Iterator[Path]:
    """A copy of the package that holds nothing compiled, the programs, and an empty home. Other
    users can get there, unlike to pytest's own temporary folders."""
    with TemporaryDirectory() as folder:
        place = Path(folder)
        source = Path(ksubset.__file__).parent
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(source, place / "source" / "ksubset", ignore=ignored)
        for name, program in (("small", SMALL), ("library", LIBRARY), ("ahead", AHEAD)):
            (place / f"{name}.py").write_text(program)
        (place / "home").mkdir()
        package(place).mkdir()
        make_writable(place)
        yield place
        make_writable(place)


def package(place: Path) -> Path:
    return place / "source" / "ksubset" / "kernels" / "cpu" / "__pycache__"


def make_writable(place: Path, writable: bool = True) -> None:
    """For the owner; nobody else may write there anyway."""
    for path in (place, *place.rglob("*")):
        mode = 0o755 if path.is_dir() else 0o644
        path.chmod(mode if writable else mode & 0o555)


def entries(place: Path) -> dict[Path, bytes]:
    """What is kept, and what else was left behind."""
    files = (file for file in place.rglob("*") if file.suffix not in (".py", ".pyc", ".typed"))
    return {file: file.read_bytes() for file in files if file.is_file()}


def as_other_user() -> Sequence[str]:
    """Permissions do not hold root back: be somebody without a name, who may read everything, for
    Python itself may lie in root's home. Anybody else is held back as he is."""
    if not hasattr(os, "geteuid"):
        pytest.skip("needs permissions as POSIX has them")
    if os.geteuid() != 0:
        return ()
    if not shutil.which("setpriv"):
        pytest.skip("needs setpriv to become another user")
    read = "dac_read_search"
    capabilities = (
        f"--inh-caps=-all,+{read}",
        f"--ambient-caps=+{read}",
        f"--bounding-set=-all,+{read}",
    )
    return "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", *capabilities


def start(
    place: Path,
    program: str,
    *arguments: object,
    options: Sequence[str] = (),
    user: Sequence[str] = (),
    **environment: str | None,
) -> subprocess.Popen[str]:
    given: dict[str, str | None] = {
        name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))
    }
    given |= {
        "PYTHONPATH": str(place / "source"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "HOME": str(place / "home"),
    }
    return subprocess.Popen(
        [*user, sys.executable, *options, f"{place / program}.py", *map(str, arguments)],
        env={name: value for name, value in (given | environment).items() if value is not None},
        cwd=place,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def outcome(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What it printed, and what it logged."""
    printed, logged = process.communicate(timeout=300)
    assert process.returncode == 0, logged
    return printed, logged


def test_nothing_can_be_written(place: Path) -> None:
    """Kernels are compiled all the same; that they are not kept is said once, and what to do."""
    make_writable(place, False)
    _, log = outcome(start(place, "small", 1, 2, user=as_other_user()))
    assert log.count(COMPILING) == 2
    assert log.count(NOT_KEPT) == 1
    assert "Permission denied" in log
    assert "NUMBA_CACHE_DIR" in log
    assert not entries(place)


def test_no_home(place: Path) -> None:
    """Numba's user-wide folder would be called "~" then, in the folder one happens to be in."""
    user = as_other_user()
    if not user:
        pytest.skip("needs a user without a name")
    place.chmod(0o777)
    before = set(place.iterdir())
    _, log = outcome(start(place, "small", 1, user=user, HOME=None))
    assert NOT_KEPT in log
    assert set(place.iterdir()) == before


def test_a_full_disk(place: Path) -> None:
    """No byte fits into any file; of what was begun nothing is left."""
    pytest.importorskip("resource")
    program = (place / "small.py").read_text()
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
    (place / "small.py").write_text(limit + program)
    _, log = outcome(start(place, "small", 1, 2))
    assert log.count(COMPILING) == 2
    assert log.count(NOT_KEPT) == 1
    assert not entries(place)


def test_the_first_folder_that_can_be_written_to(place: Path) -> None:
    """One that is named, else the package's, else the user's; what lies in any of them is used."""
    (place / "named").mkdir()
    named = str(place / "named")
    for amount, folder, options in (
        (1, place / "named", {"NUMBA_CACHE_DIR": named}),
        (2, package(place), {}),
        (3, place / "home", {"user": as_other_user()}),
    ):
        if amount == 3:  # and the home is the other user's
            make_writable(place, False)
            (place / "home").chmod(0o755)
            if os.geteuid() == 0:
                os.chown(place / "home", 54321, 54321)
        before = set(entries(place))
        outcome(start(place, "small", amount, **options))
        (entry,) = set(entries(place)) - before
        assert entry.is_relative_to(folder)
    _, log = outcome(start(place, "small", 1, 2, 3, user=as_other_user(), NUMBA_CACHE_DIR=named))
    assert not log


def test_kernels_of_the_library_are_found_by_another_user(place: Path) -> None:
    """Compiled by root for an image, say."""
    compiled = Path(ksubset.__file__).parent / "kernels" / "cpu" / "__pycache__"
    for file in compiled.glob("*.nb?"):
        shutil.copy(file, package(place))
    printed, _ = outcome(start(place, "ahead"))  # compiles what was not
    assert printed.split() == [str(package(place))]
    make_writable(place, False)
    printed, log = outcome(start(place, "ahead", user=as_other_user()))
    assert printed.split() == [str(package(place))]
    assert not log


def test_damaged_entries_are_replaced(place: Path) -> None:
    """Or compiled in every process, where they cannot be."""
    outcome(start(place, "small", 1, 2, 3, 4))
    damages = {
        "empty": lambda content: b"",
        "cut off": lambda content: content[: len(content) // 2],
        "one bit": lambda content: content[:-2000] + bytes([content[-2000] ^ 1]) + content[-1999:],
        "another": lambda content: pickle.dumps("0.1.0") + content,
    }
    whole = entries(place)
    for (file, content), damage in zip(whole.items(), damages.values(), strict=True):
        file.write_bytes(damage(content))
    make_writable(place, False)
    _, log = outcome(start(place, "small", 1, 2, 3, 4, user=as_other_user()))
    assert log.count(COMPILING) == 4
    assert log.count(NOT_KEPT) == 1
    make_writable(place)
    _, log = outcome(start(place, "small", 1, 2, 3, 4))
    assert log.count(COMPILING) == 4
    assert set(entries(place)) == set(whole)
    _, log = outcome(start(place, "small", 1, 2, 3, 4))
    assert not log


def test_processes_that_compile_at_once(place: Path) -> None:
    """Each writes files of its own or the same ones; whatever the order, nothing gets mixed up."""
    processes = [start(place, "small", 1, amount) for amount in (2, 3, 2, 3)]
    for process in processes:
        outcome(process)
    kept = entries(place)
    assert len(kept) == 3
    _, log = outcome(start(place, "small", 1, 2, 3))
    assert not log
    outcome(start(place, "small", 4))
    assert kept.items() <= entries(place).items()


@pytest.mark.skipif(getattr(os, "geteuid", lambda: 1)() != 0, reason="only root can give away")
@pytest.mark.parametrize("who", ["somebody else's", "everybody's"])
def test_a_folder_in_which_others_can_put_code_is_not_used(place: Path, who: str) -> None:
    """To load an entry is to run it."""
    folder = place / "shared"
    outcome(start(place, "small", 1, NUMBA_CACHE_DIR=str(folder)))
    (entry,) = before = entries(folder)
    if who == "everybody's":
        entry.parent.chmod(0o1777)
    else:
        os.chown(entry.parent, 54321, 54321)
    _, log = outcome(start(place, "small", 1, NUMBA_CACHE_DIR=str(folder)))
    assert COMPILING in log
    assert entries(folder) == before
    assert entries(package(place))  # the next folder


WITHOUT_NUMBA = {
    "switched off": "import os; os.environ['NUMBA_DISABLE_JIT'] = '1'",
    "missing": "import sys; sys.modules['numba'] = None",
    "broken": "import sys; sys.modules['llvmlite.binding'] = None",
}


@pytest.mark.parametrize("case", WITHOUT_NUMBA)
def test_without_numba(place: Path, case: str) -> None:
    """Torch's operations take the kernels' place, which is said once."""
    program = (place / "library.py").read_text()
    (place / "library.py").write_text(WITHOUT_NUMBA[case] + program)
    printed, log = outcome(start(place, "library", "auto", "dp"))
    auto, dp, _ = printed.splitlines()
    assert auto == dp
    assert log.count("ksubset: no compiled kernels") == 1
    assert len(log.splitlines()) == 1


def test_methods_asked_for_by_name_do_without_numba(place: Path) -> None:
    """And without a place to write to."""
    make_writable(place, False)
    printed, log = outcome(start(place, "library", "spectral", "dp", "tree", user=as_other_user()))
    *marginals, numba_is_imported = printed.splitlines()
    assert len(set(marginals)) == 1
    assert numba_is_imported == "False"
    assert not log


def test_compiling_ahead_for_nothing_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The build of an image must not pass for one whose kernels are compiled."""
    from ksubset.kernels.cpu import ahead

    monkeypatch.setattr(ahead, "compile_all", lambda: {"somewhere", None})
    with pytest.raises(SystemExit, match="could not be kept"):
        runpy.run_module("ksubset.kernels.cpu.__main__", run_name="__main__")
