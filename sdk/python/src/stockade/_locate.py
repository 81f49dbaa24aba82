"""Where the server is: that of the data directory, or the one at a URL, as for the program `stockade`."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import shutil
import socket
import ssl
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from .errors import InvalidInputError, IoError, UnreachableError, UnsupportedError

LOCAL = "local"
"""The name of the server of the data directory."""

_START_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class RemoteServer:
    """A server at a URL."""

    url: str
    api_key: str | None = dataclasses.field(repr=False)
    authorities: str | None

    def context(self) -> ssl.SSLContext:
        """What verifies its certificate."""
        context = ssl.create_default_context()
        if self.authorities is not None:
            context.load_verify_locations(cafile=self.authorities)
        return context


class LocalServer:
    """The server of a data directory, which is started when it is needed."""

    def __init__(self, data: Path, program: str | None) -> None:
        self.data = data
        self._program = program
        self._directory: int | None = None

    def socket(self) -> str:
        """The path of its socket, in a form that fits into a socket address however long `data` is."""
        if self._directory is None:
            self._directory = self._open()
        return f"/proc/self/fd/{self._directory}/socket"

    def start(self) -> None:
        """Starts it, unless it runs."""
        if self._answers():
            return
        program = self._program or shutil.which("stockade")
        if program is None:
            raise UnsupportedError(
                "no server runs, and the program `stockade` that starts one is not found",
                cause="it is in no directory of PATH",
                remediation="add the directory of `stockade` to PATH, or set STOCKADE_SERVER",
            )
        environment = {name: value for name, value in os.environ.items() if name != "STOCKADE_API_KEY"}
        environment |= {"STOCKADE_DATA_DIR": str(self.data), "STOCKADE_SERVER": LOCAL}
        try:
            subprocess.run(
                [program, "ls", "--json"],
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_START_SECONDS,
                check=True,
            )
        except subprocess.CalledProcessError as error:
            cause = error.stderr.decode(errors="replace").strip()
            raise UnreachableError(f"{program} cannot start the server", cause=cause) from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UnreachableError(f"{program} cannot start the server", cause=str(error)) from error

    def close(self) -> None:
        """Releases what finds the server. It keeps running."""
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None

    def _answers(self) -> bool:
        try:
            path = self.socket()
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
        except FileNotFoundError:
            return False
        except ConnectionRefusedError:
            return False
        return True

    def _open(self) -> int:
        """Opens the directory of the socket, which only this user may be able to enter."""
        path = self.data / "server"
        try:
            directory = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise IoError(f"cannot use {path}", cause=str(error)) from error
        found = os.fstat(directory)
        if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
            os.close(directory)
            raise IoError(
                f"{path} belongs to another user, or other users can enter it",
                remediation="export STOCKADE_DATA_DIR=/a/directory/of/your/own",
            )
        return directory


def locate(
    server: str | None = None,
    api_key: str | None = None,
    data_directory: str | os.PathLike[str] | None = None,
    program: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> LocalServer | RemoteServer:
    """The server that the arguments name, else the environment, else that of the data directory."""
    named = server or environment.get("STOCKADE_SERVER") or LOCAL
    if named == LOCAL or data_directory is not None and server is None:
        return LocalServer(_data_path(data_directory, environment), program)
    key = api_key or environment.get("STOCKADE_API_KEY") or None
    url = _checked_url(named, key is not None, environment)
    return RemoteServer(url, key, environment.get("STOCKADE_TLS_CA") or None)


def _data_path(named: str | os.PathLike[str] | None, environment: Mapping[str, str]) -> Path:
    if named is not None:
        return Path(named).absolute()
    if configured := environment.get("STOCKADE_DATA_DIR"):
        if not os.path.isabs(configured):
            raise InvalidInputError(
                f"STOCKADE_DATA_DIR is {configured}, which is not an absolute path",
                remediation=f"export STOCKADE_DATA_DIR={os.path.abspath(configured)}",
            )
        return Path(configured)
    for variable, below in (("XDG_DATA_HOME", "stockade"), ("HOME", ".local/share/stockade")):
        base = environment.get(variable, "")
        if os.path.isabs(base):
            return Path(base) / below
    raise InvalidInputError(
        "no data directory is configured",
        cause="neither STOCKADE_DATA_DIR, XDG_DATA_HOME nor HOME is an absolute path",
        remediation="export STOCKADE_DATA_DIR=/var/lib/stockade",
    )


def _checked_url(text: str, has_key: bool, environment: Mapping[str, str]) -> str:
    url = urlsplit(text)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise InvalidInputError(f"{text!r} is no URL of the form https://HOST[:PORT]")
    if url.username is not None or url.password is not None:
        raise InvalidInputError("the URL of a server must not contain a user name or password")
    if url.path not in ("", "/") or url.query or url.fragment:
        raise InvalidInputError("the URL of a server has no path and no query")
    allows_plaintext = environment.get("STOCKADE_ALLOW_PLAINTEXT") in ("1", "true")
    if has_key and url.scheme == "http" and not _is_loopback(url.hostname) and not allows_plaintext:
        raise InvalidInputError(
            f"an API key would be sent to {url.hostname} in plain text",
            remediation="use https://, or export STOCKADE_ALLOW_PLAINTEXT=1 in a network that you trust",
        )
    return f"{url.scheme}://{url.netloc}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
