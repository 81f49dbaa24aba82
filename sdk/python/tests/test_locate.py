"""Which server is used."""

import os
import tempfile
import unittest
from pathlib import Path

from stockade._locate import LocalServer, RemoteServer, locate
from stockade.errors import InvalidInputError, IoError, UnsupportedError


class Locate(unittest.TestCase):
    def data(self, environment: dict[str, str]) -> Path:
        found = locate(environment=environment)
        assert isinstance(found, LocalServer)
        return found.data

    def test_the_data_directory_is_that_of_the_program(self) -> None:
        home = {"HOME": "/home/a"}
        self.assertEqual(self.data(home), Path("/home/a/.local/share/stockade"))
        self.assertEqual(self.data(home | {"XDG_DATA_HOME": "/x"}), Path("/x/stockade"))
        self.assertEqual(self.data(home | {"STOCKADE_DATA_DIR": "/d"}), Path("/d"))
        self.assertEqual(self.data(home | {"STOCKADE_SERVER": "local"}).name, "stockade")
        for refused in ({"STOCKADE_DATA_DIR": "d"}, {}):
            with self.assertRaises(InvalidInputError):
                self.data(refused)

    def test_a_url_has_no_path_and_a_key_is_not_sent_in_plain_text(self) -> None:
        found = locate(environment={"STOCKADE_SERVER": "https://box.test", "STOCKADE_API_KEY": "k1"})
        assert isinstance(found, RemoteServer)
        self.assertEqual((found.url, found.api_key), ("https://box.test", "k1"))
        self.assertNotIn("k1", repr(found))
        for url in ("box.test", "ftp://box.test", "https://u:p@box.test", "https://box.test/v1"):
            with self.assertRaises(InvalidInputError):
                locate(url, environment={})
        for url in ("http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:1"):
            locate(url, "k1", environment={})
        with self.assertRaises(InvalidInputError):
            locate("http://box.test", "k1", environment={})
        locate("http://box.test", environment={})
        locate("http://box.test", "k1", environment={"STOCKADE_ALLOW_PLAINTEXT": "1"})

    def test_a_directory_that_others_can_enter_is_refused(self) -> None:
        with tempfile.TemporaryDirectory() as data:
            directory = Path(data) / "server"
            directory.mkdir(mode=0o755)
            os.chmod(directory, 0o755)
            with self.assertRaises(IoError):
                LocalServer(Path(data), None).socket()
            directory.rmdir()
            os.symlink("/tmp", directory)
            with self.assertRaises(IoError):
                LocalServer(Path(data), None).socket()

    def test_a_missing_program_is_named(self) -> None:
        path = os.environ["PATH"]
        os.environ["PATH"] = "/nowhere"
        try:
            with tempfile.TemporaryDirectory() as data, self.assertRaises(UnsupportedError) as refused:
                LocalServer(Path(data), None).start()
        finally:
            os.environ["PATH"] = path
        self.assertIn("PATH", refused.exception.remediation or "")


if __name__ == "__main__":
    unittest.main()
