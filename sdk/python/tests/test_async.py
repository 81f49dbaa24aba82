"""The asynchronous client with a server: what the synchronous one does, several at a time."""

import asyncio
import unittest

from stockade import AsyncClient, AsyncSandbox, Output, errors, models

from . import PROGRAM, needs_server


@needs_server
class AsyncSandboxes(unittest.IsolatedAsyncioTestCase):
    async def test_commands_run_at_the_same_time(self) -> None:
        async with AsyncClient(program=PROGRAM) as client:
            async with await AsyncSandbox.create(client=client) as sandbox:
                runs = [sandbox.run(["sh", "-c", f"sleep 0.2; echo {number}"]) for number in range(4)]
                results = await asyncio.gather(*runs)
                self.assertEqual([one.stdout for one in results], ["0\n", "1\n", "2\n", "3\n"])
                async with sandbox.open_session("cat", input=True) as session:
                    await session.send("a")
                    self.assertEqual(await session.next(timeout=20), Output("stdout", b"a"))
                    await session.send_end()
                    ends = [event async for event in session]
                assert isinstance(ends[-1], models.OutputEnd)
                self.assertEqual(ends[-1].exit_code, 0)
                await sandbox.files.write("/tmp/a", b"1")
                self.assertEqual(await sandbox.files.read("/tmp/a"), b"1")
                command = await sandbox.start_command("echo x")
                written = [event async for event in command.output()]
                self.assertEqual(written[0], Output("stdout", b"x\n"))
            with self.assertRaises(errors.SandboxTerminatedError):
                await sandbox.run("true")
            events = [one.type async for one in client.read_events(models.ReadEvents(sandbox_id=sandbox.id))]
            self.assertEqual((events[0], events[-1]), ("SANDBOX_CREATED", "SANDBOX_KILLED"))


if __name__ == "__main__":
    unittest.main()
