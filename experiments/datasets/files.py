"""Files of a dataset: where they lie, whether they are right, how they are fetched."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import tempfile
import urllib.request
import zlib
from dataclasses import dataclass
from pathlib import Path

VARIABLE = "KSUBSET_DATA"
_PATIENCE_S = 30


@dataclass(frozen=True)
class DataFile:
    """A file by its content; on disk it may be gzipped, and then ends in .gz."""

    name: str
    sha256: str

    def read(self, folder: Path) -> bytes:
        """The content, or an error that says what is wrong with it."""
        plain, zipped = folder / self.name, folder / f"{self.name}.gz"
        path = plain if plain.exists() else zipped
        if not path.exists():
            raise FileNotFoundError(
                f"{plain} does not exist, nor does {zipped.name}: --data-dir or the environment "
                f"variable {VARIABLE} names the folder of the data, --download fetches it"
            )
        content = path.read_bytes()
        return self.checked(unzipped(content, path) if path == zipped else content, str(path))

    def checked(self, content: bytes, origin: str) -> bytes:
        """Raise unless this is the content."""
        found = hashlib.sha256(content).hexdigest()
        if found != self.sha256:
            raise ValueError(
                f"{origin} is not the {self.name} it should be: the SHA-256 of its content is "
                f"{found[:16]}…, not {self.sha256[:16]}…; it may be truncated or altered"
            )
        return content

    def download(self, folder: Path, source: str) -> None:
        """Fetch what is not there yet; it takes its place once it is complete and right."""
        target = folder / f"{self.name}.gz"
        if target.exists() or (folder / self.name).exists():
            return
        address = f"{source}/{target.name}"
        try:
            with urllib.request.urlopen(address, timeout=_PATIENCE_S) as response:
                content = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise OSError(f"{address} could not be fetched: {error}") from error
        self.checked(unzipped(content, address), address)
        write_atomically(target, content)


def unzipped(content: bytes, origin: str | Path) -> bytes:
    """Raise unless it is whole."""
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"{origin} is not a complete gzip file: {error}") from None


def data_folder(given: Path | None, name: str) -> Path:
    """The folder asked for, or the dataset's own in that of the environment variable."""
    if given is not None:
        return given
    if os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE]) / name
    raise ValueError(
        f"the data {name!r} needs --data-dir, or the environment variable {VARIABLE} with a folder "
        f"that holds one called {name}"
    )


def write_atomically(path: Path, content: bytes) -> None:
    """The old file or the new one, never half of it, whatever happens."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
