# SPDX-License-Identifier: MIT
"""unittest with the exit statuses that ctest expects, and logs on failure."""
import sys
import unittest


def skip(reason):
    """The running test cannot run here; the reason is printed and counted."""
    raise unittest.SkipTest(reason)


class TestCase(unittest.TestCase):
    """A test case whose nodes print their logs when a test fails, and are torn down whatever
    happens. own(node) does so after each test; own_by_class(node) once, after the last."""

    maxDiff = None
    _class_nodes = ()

    def own(self, node):
        self.addCleanup(node.close)
        return node

    def explain(self):
        """Called when the test has failed, before anything is cleaned up: print what may say why.
        Nodes print their logs without being asked."""

    @classmethod
    def own_by_class(cls, node):
        cls._class_nodes = (*cls._class_nodes, node)
        cls.addClassCleanup(node.close)
        return node


class _Result(unittest.TextTestResult):
    def addFailure(self, test, err):
        super().addFailure(test, err)
        _print_logs(test)

    def addError(self, test, err):
        super().addError(test, err)
        _print_logs(test)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.stream.writeln(f"FAIL in {subtest}")
            _print_logs(test)


def _print_logs(test):
    from .node import live_nodes  # which imports this module's neighbours
    for node in live_nodes():
        node.print_logs()
    if isinstance(test, TestCase):
        try:
            test.explain()
        except Exception as error:  # the failure itself must still be told
            print(f"explain: {error!r}")
    sys.stdout.flush()


def main():
    """Run the calling file's tests. Exit 0: passed, 1: any failed, 77: none failed, some skipped."""
    program = unittest.main(
        module="__main__", exit=False, verbosity=2,
        testRunner=unittest.TextTestRunner(stream=sys.stdout, verbosity=2, resultclass=_Result))
    result = program.result
    sys.stdout.flush()
    if not result.wasSuccessful():
        sys.exit(1)
    for test, reason in result.skipped:
        print(f"SKIP: {reason} ({test})")
    if result.skipped:
        sys.exit(77)
    if result.testsRun == 0:
        print("no test was run")
        sys.exit(1)
    sys.exit(0)
