"""Machine code on disk, one sealed file for each signature of a kernel.

numba's files hold pickles and machine code without a checksum: a damaged one raises arbitrary errors, or crashes the
process, until somebody deletes it. Here a file begins with the digest of what follows. If the content does not agree
with the digest, or cannot be read, the code is compiled again; if it cannot be written, it is not stored.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from numba import config
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator
from numba.core.serialize import dumps

from .folder import CACHE_FOLDER, PACKAGE

DIGEST = 32
"""Number of bytes of a SHA-256 digest."""


class _Folder(_CacheLocator):
    """Where numba stores a kernel: always in our folder, even if its source cannot be found."""

    def __init__(self, file: str) -> None:
        self._py_file = file

    @classmethod
    def from_function(cls, py_func: Any, py_file: str) -> _Folder:
        return cls(py_file)

    def get_cache_path(self) -> str:
        return str(CACHE_FOLDER)

    def get_disambiguator(self) -> str:
        return hashlib.sha256(self._py_file.encode()).hexdigest()[:10]

    def get_source_stamp(self) -> str:
        """Content of the file of a cell from elsewhere; for our own files, the folder's name serves as the stamp."""
        file = Path(self._py_file)
        return hashlib.sha256(b"" if PACKAGE in file.parents or not file.is_file() else file.read_bytes()).hexdigest()


class _Result(CompileResultCacheImpl):
    """What is stored of a compilation, in our folder."""

    _locator_classes: list[Any] = [_Folder]  # noqa: RUF012


class SealedFiles:
    """Values by key, each in a file of its own.

    Parameters
    ----------
    folder : str
        The folder of the files.
    base, stamp : str
        Beginning of the files' names, and a stamp that must be the same for an entry to be found.
    """

    def __init__(self, folder: str, base: str, stamp: str) -> None:
        self.folder, self.base, self.stamp = Path(folder), base, stamp

    def _path(self, key: Any) -> Path:
        name = hashlib.sha256(repr((self.stamp, key)).encode()).hexdigest()[:32]
        return self.folder / f"{self.base}.{name}.nbc"

    def load(self, key: Any) -> Any:
        """The value, or None if there is none or its file is damaged."""
        try:
            content = self._path(key).read_bytes()
        except OSError:
            return None
        seal, body = content[:DIGEST], content[DIGEST:]
        if hashlib.sha256(body).digest() != seal:
            return None
        try:
            return pickle.loads(body)
        except Exception:
            return None

    def save(self, key: Any, value: Any) -> None:
        """Store a value; OSError if it cannot be written."""
        body, path = dumps(value), self._path(key)
        with tempfile.NamedTemporaryFile(dir=self.folder, prefix=f"{path.name}.", delete=False) as file:
            try:
                file.write(hashlib.sha256(body).digest() + body)
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise

    def flush(self) -> None:
        """Remove all entries."""
        for path in self.folder.glob(f"{self.base}.*.nbc"):
            path.unlink(missing_ok=True)


class KernelCache(FunctionCache):
    """numba's cache of one kernel, on sealed files; no error about a file reaches the caller."""

    _impl_class = _Result
    _warned = False

    def __init__(self, py_func: Callable[..., Any]) -> None:
        super().__init__(py_func)
        self._cache_file = SealedFiles(
            self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp()
        )

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Machine code for a signature, or None if it must be compiled."""
        try:
            return super().load_overload(sig, target_context)
        except Exception:
            # intact, but this version of numba cannot load it
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store machine code, or warn once that it cannot be stored."""
        try:
            super().save_overload(sig, data)
        except OSError as error:
            self.disable()
            if not KernelCache._warned:
                KernelCache._warned = True
                warnings.warn(
                    f"compiled code cannot be kept in {self._cache_path} ({error}): every process compiles anew, "
                    "until there is room for some 20 MB",
                    RuntimeWarning,
                    stacklevel=2,
                )


def keep(dispatcher: Any, source: Callable[..., Any] | None = None) -> Any:
    """Store a compiled function's machine code on disk, if there is a folder; return the function.

    It is found again by the name, the file and the code of ``source``, by default the function's own.
    """
    if CACHE_FOLDER is not None and not config.DISABLE_JIT:
        dispatcher._cache = KernelCache(source or dispatcher.py_func)
    return dispatcher
