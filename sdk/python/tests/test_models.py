"""Values as JSON, and back."""

import unittest
from typing import cast

from stockade import UNSET, models
from stockade._model import bytes_of, decode, encode, text_of


class Models(unittest.TestCase):
    def test_a_request_has_the_names_of_the_protocol_and_no_absent_member(self) -> None:
        request = models.Execute(sandbox_id="a", command=["ls", b"\xff".decode("utf-8", "surrogateescape")])
        sent = request.to_json()
        self.assertEqual(sent["sandboxId"], "a")
        self.assertEqual(sent["command"], ["ls", {"base64": "/w=="}])
        self.assertNotIn("timeoutSeconds", sent)
        moved = models.MoveFile(sandbox_id="a", from_="/x", to="/y").to_json()
        self.assertEqual(moved, {"sandboxId": "a", "from": "/x", "to": "/y"})

    def test_null_is_sent_where_it_means_something(self) -> None:
        self.assertEqual(models.Renew(id="a", ttl_seconds=None).to_json()["ttlSeconds"], None)
        self.assertNotIn("ttlSeconds", models.CreateSandbox().to_json())
        self.assertIs(models.CreateSandbox().ttl_seconds, UNSET)
        self.assertEqual(models.CreateSandbox(ttl_seconds=None).to_json()["ttlSeconds"], None)

    def test_bytes_that_are_no_text_survive(self) -> None:
        for data in (b"a\n", b"", b"\xff\x00\xc3\xbc"):
            self.assertEqual(bytes_of(text_of(data)), data)
            self.assertEqual(bytes_of(decode(str, encode(text_of(data)))), data)

    def test_objects_differ_by_their_tag_or_their_members(self) -> None:
        item = {"sequence": 3, "kind": "stdout", "data": {"base64": "/w=="}, "later": 1}
        found = decode(cast(type[models.OutputItem], models.OutputItem), item)
        self.assertEqual(found, models.OutputItemStdout(sequence=3, data="\udcff"))
        problem = {"code": "IO", "message": "no", "cause": None, "remediation": None, "retryable": False}
        listed = models.BundleList.from_json(
            {"bundles": [{"id": "cd", "error": problem}], "views": []}
        )
        self.assertIsInstance(listed.bundles[0], models.UnreadableBundle)

    def test_what_does_not_fit_is_refused(self) -> None:
        values: list[object] = [None, [], {}, {"sandboxes": 1, "more": False}]
        for value in values:
            with self.assertRaises(ValueError):
                models.SandboxList.from_json(value)


if __name__ == "__main__":
    unittest.main()
