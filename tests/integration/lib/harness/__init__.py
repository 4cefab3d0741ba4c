# SPDX-License-Identifier: MIT
"""What integration and end-to-end tests stand on: a whole node in a network namespace of its own.

    #!/usr/bin/python3
    # ctest: vm
    import os, sys
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib"))
    from harness import Node, TestCase, main, wait_until

    class Guest(TestCase):
        def setUp(self):
            self.node = self.own(Node())
            self.node.start()

        def test_answers(self):
            session = self.node.session()
            self.assertEqual(session.exec(["id", "-un"]).out, b"sandbox\n")

    main()

A test file is run by ctest and counts as one test: it fails if any of its methods fails, and is
skipped (77) if none failed and any was skipped. By hand: TRANSOM_BIN=build/dev/bin FILE [NAME...].
"""
from .api import Api, ApiError
from .certificates import key_hash, make_certificates
from .cleanup import leftovers
from .node import Node, Session, image_cache, source_dir
from .process import Process, run
from .case import TestCase, main, skip
from .wait import wait_until
from .web import fetch, raw_connect

__all__ = ["Api", "ApiError", "Node", "Process", "Session", "TestCase", "fetch", "image_cache",
           "key_hash", "leftovers", "main", "make_certificates", "raw_connect", "run", "skip",
           "source_dir", "wait_until"]
