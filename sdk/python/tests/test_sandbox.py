"""The synchronous client with a server."""

import os
import tempfile
import threading
import unittest
import unittest.mock
from pathlib import Path

from stockade import Bundle, Client, CommandFailedError, Lost, Output, Sandbox, StockadeError, errors, models

from . import PROGRAM, needs_server


@needs_server
class Sandboxes(unittest.TestCase):
    client: Client

    @classmethod
    def setUpClass(cls) -> None:
        cls.client = Client(program=PROGRAM)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.client.close()

    def test_a_command_has_output_and_an_exit_code(self) -> None:
        with Sandbox.create(client=self.client, metadata={"of": "test"}) as sandbox:
            result = sandbox.run("echo out; echo err >&2; exit 3")
            self.assertEqual((result.stdout, result.stderr, result.exit_code), ("out\n", "err\n", 3))
            with self.assertRaises(CommandFailedError) as failed:
                sandbox.run(["sh", "-c", "echo why >&2; false"], check=True)
            self.assertIn("why", str(failed.exception))
            fed = sandbox.run("cat; echo $A; pwd", input=b"in\xff", environment={"A": "b"}, working_directory="/tmp")
            self.assertEqual(fed.stdout, "in\udcffb\n/tmp\n")
            late = sandbox.run("sleep 60", timeout=0.2)
            self.assertEqual((late.ending, late.exit_code), ("timedOut", 124))
            self.assertEqual(sandbox.info().metadata, {"of": "test"})
            self.assertIn(sandbox.id, [one.id for one in Sandbox.list(client=self.client)])
        ended = self.client.get_status(models.GetSandbox(id=sandbox.id))
        self.assertEqual(ended.state, "terminated")

    def test_streams_are_read_while_a_command_runs(self) -> None:
        with Sandbox.create(client=self.client) as sandbox:
            with sandbox.open_session("read line; echo got $line; cat >&2; exit 4", input=True) as session:
                session.send("one\n")
                first = session.next(timeout=20)
                self.assertEqual(first, Output("stdout", b"got one\n"))
                session.send("rest")
                session.send_end()
                events = list(session)
            self.assertEqual(events[0], Output("stderr", b"rest"))
            assert session.end is not None
            self.assertEqual(session.end.exit_code, 4)
            with sandbox.open_session("sleep 60; echo never") as session:
                with self.assertRaises(TimeoutError):
                    session.next(timeout=0.2)
            command = sandbox.start_command("echo a; echo b >&2; sleep 0.1; exit 5")
            self.assertEqual(command.wait().exit_code, 5)
            written = [event for event in command.output() if isinstance(event, (Output, Lost))]
            self.assertIn(Output("stdout", b"a\n"), written)
            self.assertIn(Output("stderr", b"b\n"), written)
            long = sandbox.start_command(["sleep", "60"])
            long.kill()
            self.assertEqual(long.wait().ending, "killed")

    def test_a_session_that_is_closed_ends_its_command(self) -> None:
        with Sandbox.create(client=self.client) as sandbox:
            with sandbox.open_session("echo $$; sleep 61") as session:
                self.assertIsInstance(session.next(timeout=20), Output)
            seen = sandbox.run("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
            self.assertNotIn("sleep 61", seen)

    def test_a_session_whose_output_is_not_read_is_closed(self) -> None:
        with Sandbox.create(client=self.client) as sandbox:
            session = sandbox.open_session(["yes"], input=True)
            session.__enter__()
            self.assertIsInstance(session.next(timeout=20), Output)
            closing = threading.Thread(target=session.close, daemon=True)
            closing.start()
            closing.join(20)
            self.assertFalse(closing.is_alive())

    def test_files_are_written_and_read(self) -> None:
        with Sandbox.create(client=self.client) as sandbox:
            files = sandbox.files
            files.make_directory("/tmp/a")
            self.assertEqual(files.write("/tmp/a/b.bin", b"\x00\xff", mode=0o600), 2)
            self.assertEqual(files.write("/tmp/a/c.txt", iter([b"one", b"two"])), 6)
            self.assertEqual(files.read("/tmp/a/b.bin"), b"\x00\xff")
            self.assertEqual(files.read_text("/tmp/a/c.txt"), "onetwo")
            self.assertEqual(files.read("/tmp/a/c.txt", offset=1, length=2), b"ne")
            self.assertEqual(files.stat("/tmp/a/b.bin").mode & 0o777, 0o600)
            self.assertEqual([one.path for one in files.list("/tmp/a")], ["/tmp/a/b.bin", "/tmp/a/c.txt"])
            files.move("/tmp/a/b.bin", "/tmp/a/d.bin")
            found = files.search("/tmp/a", "*.bin")
            self.assertEqual([one.path for one in found], ["/tmp/a/d.bin"])
            files.remove("/tmp/a")
            self.assertFalse(files.exists("/tmp/a"))
            with self.assertRaises(errors.FileNotFoundError):
                files.read("/tmp/absent")

    def test_a_sandbox_lives_as_long_as_it_is_asked_to(self) -> None:
        with Sandbox.create(client=self.client, ttl_seconds=300) as sandbox:
            self.assertEqual(sandbox.pause().state, "paused")
            self.assertEqual(sandbox.resume().state, "running")
            before = sandbox.info().expires_at
            self.assertGreater(sandbox.renew(3000).expires_at or "", before or "")
            self.assertIsNone(sandbox.renew(None).expires_at)
            sandbox.files.write("/tmp/kept", "1")
            self.assertEqual(sandbox.stop().state, "stopped")
            self.assertEqual(sandbox.start().state, "running")
            self.assertEqual(sandbox.files.read_text("/tmp/kept"), "1")
            sandbox.kill()
            with self.assertRaises(errors.SandboxTerminatedError):
                sandbox.run("true")

    def test_a_snapshot_starts_another_sandbox(self) -> None:
        with Sandbox.create(client=self.client) as sandbox:
            sandbox.files.write("/tmp/kept", "1")
            snapshot = sandbox.snapshot("before")
            with Sandbox.restore(snapshot.id, client=self.client) as again:
                self.assertEqual(again.files.read_text("/tmp/kept"), "1")
        names = {one.id: one.name for one in self.client.snapshots()}
        self.assertEqual(names[snapshot.id], "before")
        self.client.remove_snapshot(snapshot.id)

    def test_ports_are_reached(self) -> None:
        with Sandbox.create(client=self.client) as sandbox:
            self.assertFalse(sandbox.ports.is_listening(8000))
            sandbox.files.write("/tmp/index.html", "hello from inside")
            sandbox.start_command("cd /tmp && exec python3 -m http.server 8000")
            for _ in range(200):
                if sandbox.ports.is_listening(8000):
                    break
            answer = sandbox.ports.request(8000, "/index.html")
            self.assertEqual((answer.status, answer.body), (200, "hello from inside"))
            with sandbox.ports.connect(8000) as connection:
                connection.write(b"GET /index.html HTTP/1.0\r\n\r\n")
                received = b""
                while part := connection.read(timeout=20):
                    received += part
            self.assertTrue(received.endswith(b"hello from inside"))

    def test_changes_are_a_bundle_that_is_applied_or_rejected(self) -> None:
        with tempfile.TemporaryDirectory() as project:
            Path(project, "a.txt").write_text("one\n")
            with Sandbox.create(workspace=project, client=self.client) as sandbox:
                sandbox.run("echo two >> a.txt; echo new > b.txt", check=True)
                bundle = sandbox.collect()
                assert bundle is not None
                self.assertEqual(Path(project, "a.txt").read_text(), "one\n")
                diffs = {one.path: one.diff for one in bundle.diff()}
                self.assertIn("+two", diffs["a.txt"])
                self.assertEqual({str(one.rest["path"]) for one in bundle.show()}, {"a.txt", "b.txt"})
                applied = bundle.apply(["a.txt"])
                self.assertEqual((applied.applied, applied.done), (["a.txt"], False))
                self.assertEqual(Path(project, "a.txt").read_text(), "one\ntwo\n")
                waiting = [one.id for one in Bundle.list(client=self.client)]
                self.assertIn(bundle.id, waiting)
                self.assertTrue(Bundle.get(bundle.id[:12], client=self.client).reject().rejected)
                self.assertFalse(Path(project, "b.txt").exists())
                sandbox.kill(discard=True)
            with Sandbox.create(workspace=project, client=self.client) as sandbox:
                self.assertIsNone(sandbox.collect())

    def test_an_error_has_the_class_of_its_code_and_a_remedy(self) -> None:
        with self.assertRaises(errors.NotFoundError) as unknown:
            Sandbox.connect("absent", client=self.client)
        self.assertEqual(unknown.exception.code, "NOT_FOUND")
        with self.assertRaises(StockadeError) as refused:
            Sandbox.create(id="Not An Id", client=self.client)
        self.assertEqual(refused.exception.code, "INVALID_INPUT")
        with self.assertRaises(errors.PathInvalidError), Sandbox.create(client=self.client) as sandbox:
            sandbox.files.read("relative")

    def test_a_call_with_the_same_key_is_done_once(self) -> None:
        with Sandbox.create(client=self.client) as sandbox:
            for _ in range(2):
                sandbox.run("echo x >> /tmp/log", key="only-once")
            self.assertEqual(sandbox.files.read_text("/tmp/log"), "x\n")


@needs_server
class Servers(unittest.TestCase):
    def test_a_server_is_started_when_there_is_none(self) -> None:
        # The path is longer than that of a socket may be.
        # The server must not prepare sandboxes while its directory is removed.
        pool = unittest.mock.patch.dict(os.environ, {"STOCKADE_POOL": "0"})
        with pool, tempfile.TemporaryDirectory(suffix="x" * 100, ignore_cleanup_errors=True) as data:
            with Client(data_directory=data, program=PROGRAM) as client:
                self.assertEqual(client.list(models.ListSandboxes()).sandboxes, [])
                process = int((Path(data) / "server/build").read_text().split()[-1])
                os.kill(process, 9)
                self.assertEqual(client.list(models.ListSandboxes()).sandboxes, [])
                process = int((Path(data) / "server/build").read_text().split()[-1])
                os.kill(process, 15)

    def test_a_server_that_does_not_answer_is_unreachable(self) -> None:
        with Client("http://127.0.0.1:1") as client, self.assertRaises(errors.UnreachableError) as lost:
            client.list(models.ListSandboxes())
        self.assertTrue(lost.exception.retryable)


if __name__ == "__main__":
    unittest.main()
