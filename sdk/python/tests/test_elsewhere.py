"""The client with a server at a URL, as `STOCKADE_SERVER` and `STOCKADE_API_KEY` name it."""

import os
import unittest

from stockade import Client, Output, Sandbox, StockadeError, errors


@unittest.skipUnless(os.environ.get("STOCKADE_SERVER"), "STOCKADE_SERVER names no server")
class Elsewhere(unittest.TestCase):
    def test_everything_goes_through_the_url(self) -> None:
        with Sandbox.create() as sandbox:
            self.assertEqual(sandbox.run("cat", input="in").stdout, "in")
            with sandbox.open_session("read line; echo got $line", input=True) as session:
                session.send("one\n")
                self.assertEqual(list(session)[0], Output("stdout", b"got one\n"))
            sandbox.files.write("/tmp/a", iter([b"1", b"2"]))
            self.assertEqual(sandbox.files.read("/tmp/a"), b"12")
            self.assertEqual([one.id for one in Sandbox.list()], [sandbox.id])

    def test_a_wrong_key_and_directories_of_the_server_are_refused(self) -> None:
        with Client(api_key="e2b_" + "0" * 40) as client:
            with self.assertRaises(errors.UnauthenticatedError) as refused:
                Sandbox.list(client=client)
        self.assertNotIn("0000", str(refused.exception))
        with self.assertRaises(StockadeError):
            Sandbox.create(workspace="/tmp")


if __name__ == "__main__":
    unittest.main()
